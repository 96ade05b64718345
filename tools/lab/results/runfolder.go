package results

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/net/client"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/runfolder"
)

// written is the part of config.yaml that reports need. Package configs does not read it: with package configs the
// environment could change the settings of a finished run, and a key of another version would be an error.
type written struct {
	Name    string
	Method  string
	With    []string
	Options map[string]any
	Seed    uint64
	Train   struct{ Rounds int }
	Eval    struct {
		Last   int
		Select string
		Target float64
	}
}

// isRun reports whether a folder is a run folder. A run that starts has no rounds yet. The folder of a client of a
// server's run never has rounds.
func isRun(dir string) bool {
	return isFile(dir, runfolder.ConfigFile) &&
		(isFile(dir, identity.File) || isFile(dir, record.RoundsFile) || isFile(dir, client.StoreFile))
}

// ofRun reports whether a folder is one that the run above it writes, in which there are no runs.
func ofRun(dir string) bool {
	own := []string{record.CheckFolder, runfolder.ServerFolder, runfolder.TensorBoardFolder, "plots"}
	return slices.Contains(own, filepath.Base(dir)) && isRun(filepath.Dir(dir))
}

func isFile(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular()
}

// readRun reads a run folder. Problems become its state and notes.
func readRun(dir string) (run *Run, notes []string) {
	run = &Run{Dir: dir, Name: filepath.Base(dir), Joined: isFile(dir, client.StoreFile)}
	fail := func(why string) { run.State, run.Reason = Failed, oneline.Text(why) }
	note := func(err error) {
		if err != nil {
			notes = append(notes, oneline.Text(err.Error()))
		}
	}

	named := func(name string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}

	note(named(runfolder.ConfigFile, run.readConfig()))
	note(run.readIdentity())
	calls, err := readCalls(dir)
	note(err)
	run.Execution = executionOf(calls)
	tags, err := readJSON(dir, TagsFile, maxTags, checkTags)
	note(err)
	if tags != nil {
		run.Tags = *tags
	}

	if f, err := os.Open(filepath.Join(dir, record.RoundsFile)); err == nil {
		run.Rounds, err = ReadRounds(f)
		note(named(record.RoundsFile, err))
		f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		note(err)
	}

	summary, err := readJSON[record.Summary](dir, record.SummaryFile, maxSummary, nil)
	if summary != nil {
		run.Summary = *summary
	}

	view := run.Summary.View
	for _, r := range run.Rounds {
		view = cmp.Or(view, r.View)
	}

	run.show(view)
	switch {
	case err != nil:
		note(err)
		fail("its " + record.SummaryFile + " cannot be read")
	case summary != nil && run.Summary.Rounds != len(run.Rounds):
		fail(fmt.Sprintf("%s counts %d rounds, %s has %d that can be read", record.SummaryFile, run.Summary.Rounds,
			record.RoundsFile, len(run.Rounds)))
	case summary != nil:
		run.State = Done
		if why := summary.Stopped; why != "" {
			notes = append(notes, dir+": ended early, "+oneline.Text(why))
		}
		warnings := slices.Clone(summary.Warnings)
		for i, c := range summary.Limited {
			if more := len(summary.Limited) - i; i == maxLimited && more > 1 {
				warnings = append(warnings, fmt.Sprintf("the reported numbers of examples of %d more clients were "+
					"limited (%s)", more, record.RoundsFile))
				break
			}
			warnings = append(warnings, c.String())
		}
		for _, w := range warnings {
			notes = append(notes, dir+warned+oneline.Text(w))
		}
	default:
		if text, err := readSmall(filepath.Join(dir, runfolder.ErrorFile), maxError); err != nil || text != nil {
			fail(string(text))
			break
		}
		if run.State = Done; client.FinishedRun(dir) == "" {
			run.progress(calls)
		}
	}

	return run, notes
}

func (r *Run) readConfig() error {
	text, err := readSmall(filepath.Join(r.Dir, runfolder.ConfigFile), maxConfig)
	if err != nil || text == nil {
		return err
	}

	r.Config = layer.ShortenFiles(string(text))
	var config written
	err = yaml.Unmarshal(text, &config) // fills in valid fields, even with an error
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		line, _, _ := strings.Cut(wrong.Errors[0], ":")
		err = fmt.Errorf("%s is not of a configuration; the run is shown with what can be read", line)
	}

	if config.Name != "" {
		r.Name = config.Name
	}

	r.Method = strings.Join(append([]string{methods.Called(config.Method, config.Options)}, config.With...), " + ")
	r.Seed, r.Planned = config.Seed, config.Train.Rounds
	r.EvalLast, r.BestVal, r.Target = config.Eval.Last, config.Eval.Select == "best-val", config.Eval.Target
	return err
}

// readIdentity reads the identity of the run's experiment. A run without it is compared with nothing.
func (r *Run) readIdentity() error {
	r.TestData = r.Dir
	id, err := identity.Read(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	r.Identity = &id
	if len(id.Unknown) == 0 {
		r.TestData = id.Evaluation
	}

	return nil
}

// SortedKeys returns the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Log describes the run, with a line for each round and each warning.
func (r *Run) Log() []string {
	var out []string
	say := func(format string, a ...any) { out = append(out, oneline.Text(fmt.Sprintf(format, a...))) }
	for i, round := range r.Rounds {
		var parts []string
		if round.Loss != nil {
			parts = append(parts, fmt.Sprintf("loss %.4f", *round.Loss))
		}
		if e := round.Evaluation; e != nil {
			parts = append(parts, fmt.Sprintf("accuracy %.2f %% (%s)", 100*e.Accuracy(), round.View))
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

	if r.State != Done && r.Reason != "" {
		say("%s: %s", r.State, r.Reason)
	}

	return out
}
