package features

import (
	"fmt"
	"sync"
	"time"
)

// Rates adds up what computations of features took, without the opening of sessions.
type Rates struct {
	Images int
	Took   time.Duration
	// Decoding and Encoding are what each took of the time of all workers, or of the device.
	Decoding, Encoding time.Duration
}

// Long reports whether the computations took long enough for a line of output.
func (r Rates) Long() bool { return r.Took >= 5*time.Second }

// String tells in one line which part bounds the rate.
func (r Rates) String() string {
	bound := "encoding"
	if r.Decoding > r.Encoding {
		bound = "decoding"
	}
	per := func(d time.Duration) float64 { return float64(r.Images) / d.Seconds() }
	return fmt.Sprintf("features of %d images took %.0f s: %s bounds the rate (%.0f images/s decoded, %.0f encoded)",
		r.Images, r.Took.Seconds(), bound, per(r.Decoding), per(r.Encoding))
}

// meter measures how long work kept so many workers busy.
type meter struct {
	lanes int

	mu      sync.Mutex
	running int
	last    time.Time
	busy    time.Duration // of all workers; a half where half of them worked
}

// begin notes that one more piece of work runs, until end is called.
func (m *meter) begin() (end func()) {
	m.add(1)
	return func() { m.add(-1) }
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.busy += now.Sub(m.last) * time.Duration(min(m.running, m.lanes)) / time.Duration(m.lanes)
	m.running, m.last = m.running+n, now
}
