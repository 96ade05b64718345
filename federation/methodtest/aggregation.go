package methodtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Aggregation compares the Properties of a stack with its server. Where they state a mean, the mean of a round's
// uploads alone, as from secure aggregation, has the same result, and clients upload nothing else. A stack that needs
// more has a one-line reason.
func (c Case) Aggregation(t *testing.T) {
	c.kept = cmp.Or(c.kept, new(kept))
	experiment := c.all(t)
	weighting, beside, err := methods.AveragedUploads(experiment.Method)
	if err != nil {
		if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "methods.") {
			t.Errorf("%q is no line that names a layer of the table", text)
		}
		return
	}

	plain, _ := c.plainAll(t)
	want := plain.Prompts
	got := run(t, experiment, engine.Settings{Wrap: func(inner message.Cohort) message.Cohort {
		return edited{inner, summed(weighting, beside)}
	}}).Prompts
	for _, name := range want.Names() {
		if want[name].IsInt() || strings.Contains(name, "draw") {
			continue
		}
		if d := tensor.Distance(got[name], want[name]); !(d <= orttest.Tolerance(1e-5)*max(1, want[name].MaxAbs())) {
			t.Errorf("%s differs by %v where the server gets the mean alone", name, d)
		}
	}
}

// summed returns the edit that passes the server one upload, the mean of all.
func summed(weighting string, beside []string) func(message.Instruction, []message.Reply) ([]message.Reply, error) {
	return func(instruction message.Instruction, replies []message.Reply) ([]message.Reply, error) {
		if instruction.Kind != message.Train {
			return replies, nil
		}

		one := message.Reply{Client: method.AggregatedClient, Upload: method.Upload{Client: method.AggregatedClient}}
		var ups []method.Upload
		for _, reply := range replies {
			for _, name := range reply.Upload.Extra.Names() {
				if !slices.ContainsFunc(beside, func(prefix string) bool {
					return reply.Upload.Shared[strings.TrimPrefix(name, prefix+"/")] != nil
				}) {
					return nil, fmt.Errorf("client %d uploads %s, which its layers do not state beside the mean",
						reply.Client, name)
				}
			}

			one.Sum, ups = append(one.Sum, reply.Client), append(ups, reply.Upload)
		}

		ups = aggregate.Weighting{Weighting: weighting}.Counted(ups)
		for _, u := range ups {
			one.Upload.N += u.N
		}

		one.Upload.Shared = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Shared })
		one.Upload.Extra = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Extra })
		return []message.Reply{one}, nil
	}
}
