package multimodal

import (
	"math"
	"math/rand/v2"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
)

// Two of three groups are drawn whose weights exp(sim/tau) are 4, 2 and 1: the first is i with probability w_i/7, the
// second j with w_j over the sum of the others. Of 20,000 draws the frequencies of the six orders lie within five
// standard deviations. A small temperature leaves one order, also for distant similarities.
func TestFedMGPDraws(t *testing.T) {
	const n, tau = 20000, 0.5
	w := []float64{4, 2, 1}
	sims := []float64{tau * math.Log(4), tau * math.Log(2), 0}
	m := FedMGP{Groups: 3, Exchanged: 2, Tau: tau}
	var draws *method.Draws // without a trace
	r, count := rand.New(rand.NewPCG(1, 2)), map[[2]int]float64{}
	for range n {
		d := m.draw(draws.Uniform(r, "", 3), sims)
		count[[2]int{d[0], d[1]}]++
	}
	for _, order := range [][2]int{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}} {
		first, second := w[order[0]], w[order[1]]
		p := first / 7 * second / (7 - first)
		if got := count[order] / n; math.Abs(got-p) > 5*math.Sqrt(p*(1-p)/n) {
			t.Errorf("%v came with frequency %.4f, want %.4f", order, got, p)
		}
	}
	m.Tau = 1e-3
	for range 100 {
		if d := m.draw(draws.Uniform(r, "", 3), []float64{-1, 1, 0}); d[0] != 1 || d[1] != 2 {
			t.Fatalf("a temperature of 0.001 drew %v, want 1 and 2", d)
		}
	}
}

// By FedMGP's table 3, 2 n (m d + P v) numbers with n = m = P = 2, d = 512 and v = 768: 4 (1024 + 1536).
func TestFedMGPTraffic(t *testing.T) {
	if n := fedMGPDef.Traffic.Numbers(layer.Sizes{Width: 512}); n != 10240 {
		t.Error(n)
	}
}
