package optimization

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/linalg"
)

// ReportedNumber are the options of a step of the server that uses a number which each client reports. A bound limits
// the influence of a client that lies.
type ReportedNumber struct {
	aggregate.Weighting `config:",squash"`

	Most float64 `config:"most" in:"0|1.." help:"bound on a client's number, in multiples of the median; 0: no bound"`
}

// properties returns the properties of the step, which needs more than the mean of uploads unless it is off.
func (r ReportedNumber) properties(on bool, needs string) method.Properties {
	t := method.Properties{Needs: needs, Roles: map[method.Role]string{method.ServerStep: ""}}
	switch {
	case !on:
		t.Mean, t.Needs = method.Weights(r.Weighting.Weighting), ""
	case r.Most == 0:
		t.Note = "with most: 0 nothing bounds how far one client that lies moves the prompts of all"
	}

	return t
}

// extras returns the extras of the layers inside and, where the step is on, the number.
func (ReportedNumber) extras(on bool, inside []method.Extra, name string) []method.Extra {
	if !on {
		return inside
	}
	return append(inside, method.Extra{Name: name, Shape: []int{1}})
}

// numbers returns a number of each upload, which must be at least 0. Above `most` times the round's median it counts as
// that. Where the least is bounded too, it counts as at least the median over `most`. Notes of the round count the
// numbers that this changes.
func (r ReportedNumber) numbers(global *method.Global, ups []method.Upload, name string, least bool) ([]float64,
	error) {
	out := make([]float64, len(ups))
	for i, u := range ups {
		t, err := aggregate.Extra(u, name, 1)
		if err != nil {
			return nil, err
		}
		if out[i] = float64(t.Data[0]); !(out[i] >= 0) || math.IsInf(out[i], 1) {
			return nil, fmt.Errorf("client %d uploaded %v for %s, which must be at least 0", u.Client, out[i], name)
		}
	}

	if r.Most == 0 || len(out) == 0 {
		return out, nil
	}

	sorted := slices.Sorted(slices.Values(out))
	median, low := sorted[(len(sorted)-1)/2], 0.0 // the lower one: of two numbers, a false one is not half of the mean
	if least {
		median = linalg.Median(sorted)
		low = median / r.Most
	}

	bounded := 0.0
	for i, v := range out {
		if out[i] = max(low, min(v, r.Most*median)); out[i] != v {
			bounded++
		}
	}

	if bounded > 0 {
		global.Notes[name+"_bounded"] = bounded
	}

	return out, nil
}
