package results

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"promptfed/federation/engine/record"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/runfolder"
)

// A run stalls if its process gives no sign of life for the time quiet and for slowRounds rounds.
const (
	quiet      = 10 * time.Minute
	slowRounds = 5
	paceRounds = 5 // last rounds that give the pace
)

// progress sets the state of a run without a result, its last sign of life and its remaining time.
func (r *Run) progress(calls []call) {
	var last call
	if len(calls) > 0 {
		last = calls[len(calls)-1]
	}

	r.Reason = fmt.Sprintf("%d rounds so far", len(r.Rounds))
	if r.Planned > 0 {
		r.Reason = fmt.Sprintf("%d of %d rounds so far", len(r.Rounds), r.Planned)
	}

	r.Sign = signOf(r.Dir)
	switch held, known := runfolder.Held(r.Dir); {
	case held:
		r.pace()
	case last.Error != "":
		r.State, r.Reason = Failed, oneline.Text(last.Error)
	case last.Seconds != nil:
		r.State = Stopped
	case known:
		r.State = Killed
	default:
		r.State = Unfinished
	}
}

// signOf returns the time of the last sign of life in a run folder; zero for none.
func signOf(dir string) (last time.Time) {
	for _, name := range []string{runfolder.LockFile, runfolder.ProvenanceFile, record.RoundsFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// pace sets whether a run with a process is running or stalled, and its remaining time. The time is unknown once the
// current round has taken as long as all remaining rounds should take.
func (r *Run) pace() {
	n := min(len(r.Rounds), paceRounds)
	var round time.Duration
	for _, one := range r.Rounds[len(r.Rounds)-n:] {
		round += time.Duration(one.Seconds * float64(time.Second) / float64(n))
	}

	r.State = Running
	if silent := time.Since(r.Sign); silent > max(quiet, slowRounds*round) {
		r.State = Stalled
	} else if info, err := os.Stat(filepath.Join(r.Dir, record.RoundsFile)); err == nil && n > 0 {
		r.Left = max(0, time.Duration(r.Planned-len(r.Rounds))*round-time.Since(info.ModTime()))
	}
}

// Remaining describes the remaining time of a running run; empty for others.
func (r *Run) Remaining() string {
	switch {
	case r.State != Running:
		return ""
	case r.Left == 0:
		return "unknown"
	}
	return r.Left.Round(time.Second).String()
}
