package privacy

import (
	"testing"

	"promptfed/runtime/goldentest"
)

// TestSettings compares epsilons of whole runs with integrals (tools/golden/privacy_settings.py): full participation,
// small and large rates, many rounds, little noise, several deltas, samples of fixed size and of Poisson sampling.
// Where the divergence of a round is an integral, epsilon equals that of the integrals, or is up to 0.2 % above it if
// the best order is not whole. No epsilon is below the real cost of the run, for which the distribution of the privacy
// loss gives a lower and an upper bound. It exceeds the upper one by the loss of the conversion from divergences, here
// up to 40 %, and for samples of fixed size, whose bound is known to be loose, up to three times.
func TestSettings(t *testing.T) {
	var cases []struct {
		Name                   string
		Poisson                bool
		Noise, Rate, Delta     float64
		Rounds                 int
		Lower, Upper, Integral float64
	}
	goldentest.ReadJSON(t, "testdata/settings.json", &cases)
	for _, c := range cases {
		got := Accountant{{c.Noise, c.Rate, c.Poisson}: c.Rounds}.Epsilon(c.Delta)
		most := 1.4
		if !c.Poisson && c.Rate < 1 {
			most = 3
		} else if more := got/c.Integral - 1; !(more > -1e-9 && more < 2e-3) {
			t.Errorf("%s: epsilon %v, by integrals %v", c.Name, got, c.Integral)
		}
		if !(c.Lower > 0 && c.Lower <= c.Upper && got >= c.Upper && got <= most*c.Upper) {
			t.Errorf("%s: epsilon %v; the run costs %v to %v", c.Name, got, c.Lower, c.Upper)
		}
		t.Logf("%s: epsilon %.4g, really %.4g to %.4g (%.2f times)", c.Name, got, c.Lower, c.Upper, got/c.Upper)
	}
	if len(cases) < 6 {
		t.Errorf("%d cases", len(cases))
	}
}
