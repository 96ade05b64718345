package methods_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
)

// ownRates lists all options that are learning rates, with their effect on weight decay. Parameters that the engine's
// optimizer moves have one rate for gradient and weight decay, as in a parameter group of PyTorch. The named tests
// check it.
var ownRates = map[string]string{
	"pfedmoap gating_lr": "the gate's steps and their weight decay: TestGateDecaysAtItsOwnRate, TestPyTorch",
	"apfl alpha_lr":      "a number that no optimizer moves and nothing decays: TestTwoRoundsByHand",
	"fedappr disc_lr":    "the server's optimizer of its own, without weight decay: TestDiscriminatorLearns",
	"appr disc_lr":       "the server's optimizer of its own, without weight decay: TestDiscriminatorLearns",
	"fedopt server_lr":   "the server's step from the mean, without weight decay: TestTwoRoundsByHand, TestPyTorch",
	"scaffold server_lr": "the server's step towards the mean, without weight decay: TestTwoRoundsByHand, TestPyTorch",
}

func TestOwnRatesAreListed(t *testing.T) {
	var got []string
	for _, d := range methods.Table() {
		for _, o := range d.Options() {
			if o.Name == "lr" || strings.HasSuffix(o.Name, "_lr") || strings.Contains(o.Help, "learning rate of") {
				got = append(got, d.Name+" "+o.Name)
			}
		}
	}
	for _, name := range got {
		if ownRates[name] == "" {
			t.Errorf("option %s is a learning rate: say here what weight decay does at it, and which test shows it",
				name)
		}
	}
	for name := range ownRates {
		if !slices.Contains(got, name) {
			t.Errorf("there is no option %s", name)
		}
	}
}

// The gate has an optimizer of its own, torch's SGD: b = m b + g + d p, p' = p - gating_lr b, at any rate of the
// prompt. In round 0 there are no other prompts to mix, and the gate does not change.
func TestGateDecaysAtItsOwnRate(t *testing.T) {
	const rate, own, momentum, decay = 0.05, 0.2, 0.9, 0.3
	train := spec.Training{Epochs: 2,
		Optim: optim.Config{Name: "sgd", LR: rate, Momentum: momentum, WeightDecay: decay}}
	got := methodtest.Traced(t, "pfedmoap", nil, options{"tokens": 2, "experts": 3, "gating_dim": 2, "heads": 1,
		"gating_lr": own}, 2, train)
	for _, name := range slices.Concat(gate, []string{"ctx"}) {
		lr := own
		if name == "ctx" {
			lr = rate
		}
		p := slices.Clone(got["r1/c0/begin/"+name].Data)
		b := make([]float64, len(p))
		for step := range 4 { // 9 examples in batches of 4, the last one left out
			at := fmt.Sprintf("r1/c0/s%d/", step)
			g, after := got[at+"grad/"+name], got[at+"after/"+name]
			for i := range p {
				b[i] = momentum*b[i] + float64(g.Data[i]) + decay*float64(p[i])
				if step == 0 {
					b[i] = float64(g.Data[i]) + decay*float64(p[i])
				}
				want := float64(p[i]) - lr*b[i]
				if math.Abs(float64(after.Data[i])-want) > 1e-6 {
					t.Fatalf("%s%s at element %d is %v, by hand %v", at, name, i, after.Data[i], want)
				}
			}
			p = slices.Clone(after.Data)
		}
	}
	if !slices.Equal(got["r0/c0/begin/gate/q/w"].Data, got["r0/c0/s0/after/gate/q/w"].Data) {
		t.Error("the gate moved before there was anybody to mix with")
	}
}
