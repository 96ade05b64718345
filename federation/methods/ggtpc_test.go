package methods_test

import (
	"slices"

	"promptfed/federation/methodtest"
)

// Options under which GGTPC changes nothing.
var noCalibration = options{"strength": 0.0, "sampling": "none"}

var (
	shapes = []string{"axes", "sizes"}
	places = []string{"prototypes/mean", "prototypes/label"}
)

// ggtpc names the tensors that GGTPC traces over a base method, on clients of several backbones: the encoding of
// covariances, and the broadcast tensors, sent once or in every round.
func ggtpc(base methodtest.Names, form string, every bool, sent ...string) methodtest.Names {
	n := base
	n.Statistic = &methodtest.Statistic{Name: "ggtpc", Every: every, Answer: []string{"n", "mean", form},
		PerClient: sent}
	if slices.Contains(sent, "axes") {
		n.Draw = append(slices.Clone(n.Draw), "clean", "eps")
	}
	n.State = func(round int) []string {
		var out []string
		if base.State != nil {
			out = base.State(round)
		}
		if round > 0 && !every {
			out = slices.Concat(out, sent)
		}
		return out
	}
	return n
}
