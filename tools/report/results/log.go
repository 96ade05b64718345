package results

import (
	"fmt"
	"strings"
)

// Log tells what happened in the run, a line for each round and each warning.
func (r *Run) Log() []string {
	var out []string
	say := func(format string, a ...any) { out = append(out, oneLine(fmt.Sprintf(format, a...))) }
	for i, round := range r.Rounds {
		parts := []string{fmt.Sprintf("loss %.4f", round.Loss)}
		if e := round.Evaluation; e != nil {
			parts = append(parts, fmt.Sprintf("accuracy %.2f %% (%s)", 100*e.Accuracy, round.View))
		}
		if n := len(round.Clients); n > 0 {
			parts = append(parts, fmt.Sprintf("%d clients", n))
		}
		if n := round.BytesUp + round.BytesDown; n > 0 {
			parts = append(parts, fmt.Sprintf("%.1f kB", float64(n)/1e3))
		}
		say("round %d: %s, %.1f s", i+1, strings.Join(parts, ", "), round.Seconds)
		for _, w := range round.Warnings {
			say("round %d: warning: %s", i+1, w)
		}
		if n := len(round.Unanswered); n > 0 {
			say("round %d: no answer to the test from %d clients", i+1, n)
		}
	}
	for _, w := range r.Summary.Warnings {
		say("warning: %s", w)
	}
	for _, c := range r.Summary.Limited {
		say("%s", c.String())
	}
	if r.Summary.Stopped != "" {
		say("ended early: %s", r.Summary.Stopped)
	}
	if r.State != Done && r.Why != "" {
		say("%s: %s", r.State, r.Why)
	}
	return out
}
