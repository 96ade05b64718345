package secure_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/privacy/secure"
)

// Updates of a usual size at ordinary learning rates are not clipped by the defaults, while 24 bits and clip 1 would
// clip a sixth in round 0. The mean equals that of plain uploads within half a step and the rounding of float32.
func TestDefaultsDoNotCut(t *testing.T) {
	loud := func(c secure.Config) (plain, sum *engine.Result, l *secure.Aggregation) {
		c.Threshold = 0.6
		e, l := experiment(t, c, "promptfl", nil, options{"tokens": 3})
		e.Plan.Rounds, e.Training.Optim.LR = 1, 6
		return enginetest.Run(t, e, engine.Settings{}), enginetest.Run(t, e, over(l, false)), l
	}
	plain, sum, l := loud(secure.Defaults())
	n, large := 0, 0
	for _, v := range plain.Prompts["shared/ctx"].Data { // of the mean, whose update is smaller than the clients'
		if n++; math.Abs(float64(v)) > 1 {
			large++
		}
	}
	if large < n/6 {
		t.Errorf("%d of %d numbers of the mean moved by more than 1", large, n)
	}
	if got := sum.Records[0]; got.Notes["secagg_clipped"] != 0 || len(got.Warnings) != 0 ||
		len(sum.Summary.RoundWarnings) != 0 {
		t.Errorf("%v, %v", got.Notes, got.Warnings)
	}
	if d := maxDiff(t, plain, sum); !(d <= l.Step()/2+1e-6) || l.Step() > 1.0/(1<<23-1) {
		t.Errorf("prompts differ by %v with steps of %v", d, l.Step())
	}
	_, cut, _ := loud(secure.Config{Bits: 24, Clip: 1, ExtraClip: 16, Examples: 1 << 16})
	share := cut.Records[0].Notes["secagg_clipped"]
	if share < 1.0/6 {
		t.Errorf("clip: 1 cut %v of the numbers", share)
	}
	if w := cut.Summary.RoundWarnings; len(w) != 1 || !strings.Contains(w[0], "round 1: secure aggregation clipped") ||
		!strings.Contains(w[0], "clip (1)") {
		t.Errorf("cutting is said as %q", w)
	}
}
