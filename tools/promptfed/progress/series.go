package progress

import (
	"fmt"
	"time"

	"promptfed/federation/experiment"
)

// Series is a sequence of runs. The display of each run shows the remaining time of all.
type Series struct {
	Runs   int
	Rounds int // of all runs, including rounds of earlier calls of the program

	begun int // runs
	done  int // rounds of this call
	began time.Time
}

// New returns the display of the next run.
func (s *Series) New(conf experiment.Config) *Display {
	d := New(conf)
	if s.begun++; s.Runs > 1 {
		d.series, d.name = s, fmt.Sprintf("%s (run %d of %d)", d.name, s.begun, s.Runs)
	}
	return d
}

// round counts a round. earlier says that an earlier call of the program computed it.
func (s *Series) round(earlier bool) {
	if s == nil {
		return
	}
	if s.Rounds--; !earlier {
		s.done++
	}
}

// left returns the remaining time of all runs at the pace of their rounds so far, or "" if no pace is known.
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
