package methodtest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// terms: the terms add up to the loss in every step, in value and, with what AdjustGradients adds, in gradient. Records
// have their means, and the drift of clients. Measuring them changes nothing else, for any number of workers and any
// form of messages.
func (c Case) terms(t *testing.T) {
	r, rec := traced(t, c.all(t), engine.Settings{Client: client.Settings{Terms: true}, Workers: 8, Encode: true})
	for i := range r.Records {
		if !c.learnsNothing() {
			c.checkTerms(t, rec.Tensors, i, r.Records[i].Terms)
		}
		r.Records[i].Terms, r.Records[i].Drift = nil, nil
	}

	plain, _ := c.plainAll(t)
	outcomeOf(t, r).same(t, outcomeOf(t, plain), "with and without terms")
}

// checkTerms compares a round's record of terms with what the steps traced.
func (c Case) checkTerms(t *testing.T, trace tensor.Map, round int, got []record.Term) {
	t.Helper()
	if len(got) == 0 || !method.IsCrossEntropy(got[0].Name) {
		t.Fatalf("round %d has the terms %+v", round, got)
	}

	norms, values, fits := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for client := range 4 {
		steps := 0
		for ; trace[fmt.Sprintf("r%d/c%d/s%d/loss", round, client, steps)] != nil; steps++ {
		}

		for index := range steps {
			step := trace.WithoutPrefix(fmt.Sprintf("r%d/c%d/s%d", round, client, index))
			loss, size := 0.0, 0.0
			sum, fit := tensor.Map{}, tensor.Map{}
			for _, term := range got {
				one := step.WithoutPrefix("term/" + term.Name)
				if v := one["loss"]; v != nil {
					loss, size = loss+float64(v.Data[0]), size+math.Abs(float64(v.Data[0]))
					values[term.Name] += float64(v.Data[0]) / float64(4*steps)
				}

				gradients := one.WithoutPrefix("grad")
				for name, d := range gradients {
					norms[term.Name+"/"+name] += d.Norm() / float64(4*steps)
					for _, into := range []tensor.Map{sum, fit} {
						if into[name] == nil {
							into[name] = tensor.New(d.Shape...)
						}
					}
				}

				sum.Axpy(1, gradients)
				if method.IsCrossEntropy(term.Name) {
					fit.Axpy(1, gradients)
				}
			}

			for name, d := range fit {
				fits[name] += d.Norm() / float64(4*steps)
			}

			if want := float64(step["loss"].Data[0]); !(math.Abs(loss-want) <= orttest.Tolerance(1e-5)*(1+size)) {
				t.Errorf("round %d, client %d, step %d: the terms add up to %g, the loss is %g", round, client, index,
					loss, want)
			}

			for name, want := range step.WithoutPrefix("grad") {
				if d := tensor.Distance(sum[name], want); !(d <= 2e-5*(0.1+sum[name].MaxAbs()+want.MaxAbs())) {
					t.Errorf("round %d, client %d, step %d: the terms' gradients of %s add up to another, off by %g "+
						"of %g", round, client, index, name, d, want.MaxAbs())
				}
			}
		}
	}

	near := func(a, b float64) bool { return math.Abs(a-b) <= orttest.Tolerance(1e-5)*(1e-3+math.Abs(b)) }
	for _, term := range got {
		if value := term.Value; value != nil && !near(*value, values[term.Name]) ||
			(value == nil) != (term.Name == message.Correction) {
			t.Errorf("round %d: term %s is %v, its steps have %g", round, term.Name, value, values[term.Name])
		}
		for name, on := range term.Params {
			want := norms[term.Name+"/"+name]
			if !near(on.Norm, want) || (on.Relative == nil) != (fits[name] == 0) || on.Relative != nil &&
				!near(*on.Relative, want/fits[name]) {
				t.Errorf("round %d: the gradient of term %s on %s is %+v, its steps have %g of %g", round, term.Name,
					name, on, want, fits[name])
			}
			delete(norms, term.Name+"/"+name)
		}
	}

	if len(norms) > 0 {
		t.Errorf("round %d: the record lacks %v", round, norms)
	}
}

// CheckTermNames compares the names of the terms of a loss, joined by commas, with those of a base method and wrappers,
// joined by "+", with options.
func CheckTermNames(t *testing.T, stack string, o Options, want string) {
	t.Helper()
	layers := strings.Split(stack, "+")
	if got := strings.Join(method.TermNames(Build(t, layers[0], layers[1:], o)), ", "); got != want {
		t.Errorf("%s %v has the terms %s, want %s", stack, o, got, want)
	}
}
