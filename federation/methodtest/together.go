package methodtest

import (
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/runtime/tensor"
)

// together: steps of up to three clients in one run equal a run for each client up to rounding: prompts, losses and
// bytes. Clients of the toy take 4, 2, 2 and 2 steps, so that clients leave the run on the way.
func (c Case) together(t *testing.T) {
	experiment := c.all(t)
	experiment.BatchClients = 3
	want, _ := c.plainAll(t)
	got := run(t, experiment, engine.Settings{Workers: 1})
	if len(got.Prompts) != len(want.Prompts) {
		t.Fatalf("prompts %v, want %v", got.Prompts.Names(), want.Prompts.Names())
	}

	for name, w := range want.Prompts {
		g := got.Prompts[name]
		if g == nil || !g.SameShape(w) {
			t.Fatalf("%s is %v, want %v", name, g, w)
		}
		if d := tensor.Distance(g, w); !(d <= 1e-6*max(1, w.MaxAbs())) {
			t.Fatalf("%s differs by %g", name, d)
		}
	}

	for i, w := range want.Records {
		g := got.Records[i]
		if d := math.Abs(*g.Loss - *w.Loss); !(d <= 1e-6*max(1, math.Abs(*w.Loss))) || g.BytesUp != w.BytesUp {
			t.Errorf("round %d: loss %g and %d bytes, want %g and %d", i, *g.Loss, g.BytesUp, *w.Loss, w.BytesUp)
		}
	}
}
