package methods

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/method"
)

// Reported bounds what a number that clients say of themselves can do to the server's step.
type Reported struct {
	Most float64 `config:"most" help:"times the median of a round that a client's number counts at most; 0 bounds none"`
}

// Check refuses bounds that make no sense.
func (r Reported) Check() error {
	if r.Most > 0 && r.Most < 1 {
		return fmt.Errorf("option most is %v; it must be 0 or at least 1", r.Most)
	}
	return Within("most", r.Most, 0, maxWeight)
}

// numbers gives one number that each upload reports, bounded. It must be at least 0.
func (r Reported) numbers(ups []method.Upload, name string) ([]float64, error) {
	out := make([]float64, len(ups))
	for i, u := range ups {
		t, err := extra(u, name, 1)
		if err != nil {
			return nil, err
		}
		if out[i] = float64(t.Data[0]); !(out[i] >= 0) || math.IsInf(out[i], 1) {
			return nil, fmt.Errorf("client %d uploaded %v for %s, which must be at least 0", u.Client, out[i], name)
		}
	}
	if r.Most > 0 && len(out) > 0 {
		sorted := slices.Sorted(slices.Values(out))
		for i, v := range out {
			out[i] = min(v, r.Most*median(sorted))
		}
	}
	return out, nil
}
