package methodtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/methods"
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
		return sums{inner, weighting, beside}
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

// sums passes the server one upload, the mean of all.
type sums struct {
	message.Cohort
	weighting string
	beside    []string
}

func (c sums) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	replies, err := c.Cohort.Run(ctx, instruction)
	if instruction.Kind != message.Train || err != nil {
		return replies, err
	}

	one := message.Reply{Client: method.AggregatedClient, Upload: method.Upload{Client: method.AggregatedClient}}
	var ups []method.Upload
	for _, reply := range replies {
		for _, name := range reply.Upload.Extra.Names() {
			if !slices.ContainsFunc(c.beside, func(prefix string) bool {
				return reply.Upload.Shared[strings.TrimPrefix(name, prefix+"/")] != nil
			}) {
				return nil, fmt.Errorf("client %d uploads %s, which its layers do not state beside the mean",
					reply.Client, name)
			}
		}

		if method.Weights(c.weighting) == method.Uniform {
			reply.Upload.N = 1
		}

		one.Sum, one.Upload.N, ups = append(one.Sum, reply.Client), one.Upload.N+reply.Upload.N, append(ups,
			reply.Upload)
	}

	one.Upload.Shared = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Shared })
	one.Upload.Extra = method.Mean(ups, func(u method.Upload) tensor.Map { return u.Extra })
	return []message.Reply{one}, nil
}
