package progress

import (
	"fmt"
	"time"

	"promptfed/federation/experiment"
)

// Series is a sequence of runs. The display of each run shows the remaining time of all.
type Series struct {
	runs, begun int
	pace        pace
}

// NewSeries returns the series of some configurations.
func NewSeries(confs []experiment.Config) *Series {
	s := &Series{runs: len(confs), pace: pace{}}
	for _, c := range confs {
		s.pace.rounds(c).left += c.Train.Rounds
	}
	return s
}

// New returns the display of the next run.
func (s *Series) New(conf experiment.Config) *Display {
	d := New(conf)
	if s.begun++; s.runs > 1 {
		d.series, d.kind = s, s.pace.rounds(conf)
		d.name = fmt.Sprintf("%s (run %d of %d)", d.name, s.begun, s.runs)
	}
	return d
}

// left returns the remaining time of all runs, or "" without a series.
func (s *Series) left() string {
	if s == nil {
		return ""
	}
	return s.pace.text(1, " for all runs")
}

// pace estimates the remaining time of rounds, by their kind.
type pace map[string]*rounds

// rounds are those of one kind.
type rounds struct {
	left, done int
	seconds    float64 // of those that are done
}

// rounds returns the rounds of runs with the method, the backbones and the data of a configuration, which take about as
// long as each other.
func (p pace) rounds(c experiment.Config) *rounds {
	kind := fmt.Sprint(c.Method, c.With, c.Backbones, c.Data.Set, c.Data.Root)
	if p[kind] == nil {
		p[kind] = &rounds{}
	}
	return p[kind]
}

// round counts a round. earlier says that an earlier call of the program computed it.
func (r *rounds) round(seconds float64, earlier bool) {
	if r.left--; !earlier {
		r.done, r.seconds = r.done+1, r.seconds+seconds
	}
}

// text describes the remaining time if jobs runs train at a time; which names the runs. The time is unknown until one
// round of each kind is done. The text is "" if nothing is left.
func (p pace) text(jobs int, which string) string {
	seconds, left := 0.0, 0
	for _, r := range p {
		if left += r.left; r.left > 0 && r.done == 0 {
			return ", time left" + which + " unknown"
		}
		seconds += r.seconds * float64(r.left) / float64(max(1, r.done))
	}

	if left == 0 {
		return ""
	}

	t := time.Duration(seconds / float64(jobs) * float64(time.Second))
	return fmt.Sprintf(", about %s left%s", t.Round(time.Second), which)
}
