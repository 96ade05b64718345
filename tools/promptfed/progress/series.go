package progress

import (
	"fmt"
	"time"

	"promptfed/federation/experiment"
)

// Series is several runs, one after the other, whose displays say how long all of them will take.
type Series struct {
	Runs   int
	Rounds int // of all runs together, those of earlier calls too

	begun int // runs
	done  int // rounds of this call
	began time.Time
}

// New is the display of the next run of a series.
func (s *Series) New(conf experiment.Config) *Display {
	d := New(conf)
	if s.begun++; s.Runs > 1 {
		d.series, d.name = s, fmt.Sprintf("%s (run %d of %d)", d.name, s.begun, s.Runs)
	}
	return d
}

// round counts a round, of an earlier call or of this one.
func (s *Series) round(earlier bool) {
	if s == nil {
		return
	}
	if s.Rounds--; !earlier {
		s.done++
	}
}

// left is how long all runs will take at the pace of their rounds so far; empty where there is nothing to go by.
func (s *Series) left() string {
	if s == nil {
		return ""
	}
	text := left(s.began, s.done, s.done+s.Rounds)
	if text != "" {
		text += " for all runs"
	}
	return text
}
