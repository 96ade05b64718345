package personalized_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// Epsilon of the local prompts is at least that of one Gaussian mechanism for all releases together, of factors that
// move by 2C√2 at most, or 2C√3 with the shared gradient, under noise z C: k releases are one with √k times the
// sensitivity. Rényi's bound is at most a tenth above it.
func TestEpsilonLocal(t *testing.T) {
	const rounds = 5
	for _, c := range []struct {
		z     float64
		noisy string
		steps int
		parts float64
	}{{20, "factors", 1, 2}, {60, "factors", 7, 2}, {40, "all", 3, 3}, {5, "all", 1, 3}} {
		m := methodtest.Build(t, "dpfpl", nil, methodtest.Options{"noise": c.z, "noisy": c.noisy, "steps": c.steps})
		want := epsilonGaussian(2*math.Sqrt(c.parts*float64(c.steps*rounds))/c.z, 1e-5)
		promised, on := methods.EpsilonLocal(m, rounds)
		if !on || !(promised >= want && promised < 1.1*want) {
			t.Errorf("%+v: epsilon %v, %v; the exact one is %v", c, promised, on, want)
		}
		for _, noise := range []method.Noise{nil, unread} {
			name, other := "epsilon_local", "epsilon_local_nominal"
			if noise == nil {
				name, other = other, name
			}
			g := &method.Global{Round: rounds - 1, Noise: noise, Notes: map[string]float64{},
				Shared: tensor.Map{"global": tensor.New(1, 1)}}
			up := method.Upload{Client: method.AggregatedClient, N: 1, Shared: g.Shared}
			goldentest.NoError(t, m.Merge(g, []method.Upload{up}))
			if _, wrong := g.Notes[other]; wrong || g.Notes[name] != promised {
				t.Errorf("notes %v, want %s %v", g.Notes, name, promised)
			}
		}
	}
	// The number of steps has no bound, or there is no noise.
	for _, o := range []methodtest.Options{{"noise": 1.0}, {"steps": 3}} {
		m := methodtest.Build(t, "dpfpl", nil, o)
		if e, on := methods.EpsilonLocal(m, rounds); on && !math.IsInf(e, 1) {
			t.Errorf("%v: epsilon %v", o, e)
		}
	}
}

func TestDPFPLRefuses(t *testing.T) {
	for want, o := range map[string]methodtest.Options{"option clip is 0": {"clip": 0.0, "noise": 1.0},
		"option init_std is 0": {"init_std": 0.0}} {
		_, err := methods.Build("dpfpl", nil, o)
		goldentest.WantError(t, err, want)
	}
	m := methodtest.Build(t, "dpfpl", nil, methodtest.Options{"noise": 1.0, "steps": 3})
	goldentest.WantError(t, m.AdjustGradients(&method.Local{Steps: 3}, nil), "step 4 of a round", "assumes 3 at most")
}

// epsilonGaussian returns the least epsilon of the Gaussian mechanism with sensitivity over noise mu, by Balle and
// Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018, theorem 8, found by bisection.
func epsilonGaussian(mu, delta float64) float64 {
	phi := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	lo, hi := 0.0, 1000.0
	for range 100 {
		e := (lo + hi) / 2
		if phi(mu/2-e/mu)-math.Exp(e)*phi(-mu/2-e/mu) > delta {
			lo = e
		} else {
			hi = e
		}
	}
	return hi
}

// unread is a secret source from which nothing is drawn.
func unread(string, []byte) (*rand.Rand, int, error) { return nil, 1, nil }
