package calibration

import (
	"errors"
	"testing"

	"promptfed/federation/method"
)

// If the run ends, no further class's axes are computed.
func TestAxesEndWithTheRun(t *testing.T) {
	m := calibration(func(*GGTPC) {})
	ups := statisticsOf(t, m, []float32{0, 0, 2, 0}, []float32{4, 3, 4, -3})
	over := errors.New("stopped")
	g := global(method.ClientInfo{}, method.ClientInfo{})
	g.Interrupted = func() error { return over }
	if err := m.aggregate(g, ups); !errors.Is(err, over) || g.Broadcast["axes"] != nil {
		t.Errorf("%v, %v", err, g.Broadcast)
	}
	g.Interrupted = func() error { return nil }
	if err := m.aggregate(g, ups); err != nil || g.Broadcast["axes"] == nil {
		t.Error(err)
	}
}
