package experiment

import "testing"

// TestSampling: a round drawn by Poisson sampling needs a server that can do with nobody.
func TestSampling(t *testing.T) {
	c := small("promptfl")
	c.Sampling = "bernoulli"
	refuses(t, c, "sampling", "fixed, poisson")
	c.Sampling, c.Participation = poisson, 0.5
	refuses(t, c, "sampling: poisson may draw nobody", "sampling: fixed")
	c.With, c.Options = []string{"dp"}, map[string]any{"dp": map[string]any{"noise": 0.0, "clip": 0.0}}
	refuses(t, c, "sampling: poisson may draw nobody")
	c.Options, c.Train.Rounds = map[string]any{"tokens": 2, "noise": 2.0}, 6
	sizes := map[int]bool{}
	for _, r := range finish(t, open(t, c)).Records {
		sizes[len(r.Clients)] = true
		if !(r.Notes["epsilon"] > 0) {
			t.Errorf("round %d notes %v", r.Round, r.Notes)
		}
	}
	if len(sizes) < 2 {
		t.Errorf("all rounds had the sizes %v", sizes)
	}
}
