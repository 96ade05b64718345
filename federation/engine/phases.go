package engine

import (
	"sync/atomic"
	"time"

	"promptfed/federation/engine/record"
)

// overhead is the cost of clients' turns besides computation, in nanoseconds, summed over turns.
type overhead struct{ messages, disk atomic.Int64 }

func since(to *atomic.Int64, began time.Time) { to.Add(int64(time.Since(began))) }

// phaseClock divides the time of a round among phases.
type phaseClock struct {
	record.Phases
	began, last time.Time
	cost        *overhead
	workers     int // turns at a time
}

func startPhases(cost *overhead, workers int) *phaseClock {
	now := time.Now()
	return &phaseClock{began: now, last: now, cost: cost, workers: workers}
}

// lap adds the time since the last lap to a phase, except the time of messages and disks, which goes to phases of its
// own.
func (p *phaseClock) lap(to *float64) {
	now := time.Now()
	seconds := now.Sub(p.last).Seconds()
	p.last = now
	for _, o := range []struct {
		spent *atomic.Int64
		to    *float64
	}{{&p.cost.messages, &p.Messages}, {&p.cost.disk, &p.Disk}} {
		n := min(seconds, time.Duration(o.spent.Swap(0)).Seconds()/float64(p.workers))
		*o.to += n
		seconds -= n
	}

	*to += seconds
}

// end writes the seconds of the round. The server's phase gets the rest of the time.
func (p *phaseClock) end(rec *record.Record) {
	p.lap(&p.Server)
	rec.Seconds, rec.Phases = p.last.Sub(p.began).Seconds(), &p.Phases
}
