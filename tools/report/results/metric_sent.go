package results

import (
	"slices"
	"strconv"
)

// Quantities of communication and of simulated time: by the end of a round, or of the first round with an accuracy.
const (
	TotalBytes      = "total-bytes"
	TotalParameters = "total-parameters"
	Simulated       = "simulated" // seconds
	RoundsTo        = "rounds-to"
	BytesTo         = "bytes-to"
	ParametersTo    = "parameters-to"
	SimulatedTo     = "simulated-to"
)

// first is the window of quantities that some rounds do not have: the first one that does.
const first = "first"

func totalBytes(r Round) (float64, bool)      { return r.Sent.Bytes, true }
func totalParameters(r Round) (float64, bool) { return r.Sent.Parameters, r.Sent.Parameters > 0 }

func simulated(r Round) (float64, bool) {
	if r.Simulated == nil {
		return 0, false
	}
	return r.Simulated.Seconds, true
}

var sent = map[string]quantity{
	TotalBytes:      {"bytes of all rounds so far, up and down", last, Byte, true, plain(totalBytes)},
	TotalParameters: {"parameters sent in all rounds so far, up and down", last, Count, true, plain(totalParameters)},
	Simulated:       {"simulated seconds since the start", last, Second, true, plain(simulated)},
	RoundsTo: {"rounds to an accuracy (%) of", first, Count, true, reached(func(r Round) (float64, bool) {
		return float64(r.Round + 1), true
	})},
	BytesTo:      {"bytes to an accuracy (%) of", first, Byte, true, reached(totalBytes)},
	ParametersTo: {"parameters to an accuracy (%) of", first, Count, true, reached(totalParameters)},
	SimulatedTo:  {"simulated seconds to an accuracy (%) of", first, Second, true, reached(simulated)},
}

func plain(of func(r Round) (float64, bool)) func(Round, string) (float64, bool) {
	return func(r Round, _ string) (float64, bool) { return of(r) }
}

// reached is a number of the rounds with an accuracy, in percent, or a higher one.
func reached(of func(r Round) (float64, bool)) func(Round, string) (float64, bool) {
	return func(r Round, target string) (float64, bool) {
		percent, err := strconv.ParseFloat(target, 64)
		if err != nil || r.Evaluation == nil || 100*r.Accuracy < percent {
			return 0, false
		}
		return of(r)
	}
}

// towards are the quantities up to an accuracy.
var towards = []string{RoundsTo, BytesTo, ParametersTo, SimulatedTo}

// costs lists the metrics of communication and time that stand beside accuracies: simulated time where runs have it,
// and what the targets of their configurations (eval.target) took.
func costs(groups []*Group) []string {
	var out []string
	if measured(Simulated, groups) {
		out = append(out, Simulated)
	}
	var targets []float64
	for _, g := range groups {
		for _, r := range g.Runs {
			if r.Target > 0 && !slices.Contains(targets, r.Target) {
				targets = append(targets, r.Target)
			}
		}
	}
	slices.Sort(targets)
	for _, t := range targets {
		at := ":" + strconv.FormatFloat(t, 'g', -1, 64)
		out = append(out, RoundsTo+at, BytesTo+at, ParametersTo+at)
		if slices.Contains(out, Simulated) {
			out = append(out, SimulatedTo+at)
		}
	}
	return out
}
