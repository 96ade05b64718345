package methodtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/trace"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// after calls stop at the n-th step of a run.
type after struct {
	n    int64
	stop func()
}

func (a *after) Put(string, *tensor.Tensor) {}
func (a *after) Round(trace.RoundRecord)    {}
func (a *after) Step(trace.StepRecord) {
	if atomic.AddInt64(&a.n, -1) == 0 {
		a.stop()
	}
}

// block puts something else in the place of a file or folder of a run, which it moves aside.
func block(path, aside string) {
	info, _ := os.Stat(path)
	os.Rename(path, aside)
	if info.IsDir() {
		os.WriteFile(path, nil, 0o644)
	} else {
		os.MkdirAll(filepath.Join(path, "in the way"), 0o755)
	}
}

// interruptions stop a run at one point.
var interruptions = []struct {
	name    string
	set     func(s *engine.Settings, stop func())
	blocked string // a file or folder of the run that cannot be written after round 1, in place of set
}{
	{name: "second step", set: func(s *engine.Settings, stop func()) { s.Client.Tracer = &after{2, stop} }},
	{name: "eleventh step", set: func(s *engine.Settings, stop func()) { s.Client.Tracer = &after{11, stop} }},
	{name: "first turn", set: func(s *engine.Settings, stop func()) {
		s.OnTurn = func(message.Instruction, int) { stop() }
	}},
	{name: "a test", set: func(s *engine.Settings, stop func()) {
		s.OnTurn = func(instruction message.Instruction, client int) {
			if instruction.Kind == message.Test && client == 2 {
				stop()
			}
		}
	}},
	{name: "between rounds", set: func(s *engine.Settings, stop func()) {
		s.OnRound = func(r record.Record) {
			if r.Round == 1 {
				stop()
			}
		}
	}},
	{name: "a commit that cannot be written", blocked: record.CheckFolder},
	{name: "a server file that cannot be replaced", blocked: record.CheckFolder + "/server.safetensors"},
	{name: "a line that cannot be written", blocked: record.RoundsFile},
}

// resume: a run that is stopped at some of the interruptions and resumed has the bytes of an uninterrupted run.
func (c Case) resume(t *testing.T) {
	want := c.plain(t)
	every := 3 // to save time
	if c.Sampled {
		every = len(interruptions)
	}

	for i := c.draw("resume", every); i < len(interruptions); i += every {
		in := interruptions[i]
		dir := t.TempDir()
		ctx, stop := context.WithCancel(context.Background())
		set := engine.Settings{Dir: dir, Workers: 2}
		path, aside := filepath.Join(dir, in.blocked), filepath.Join(dir, "aside")
		if in.blocked == "" {
			in.set(&set, stop)
		} else {
			set.OnRound = func(r record.Record) {
				if r.Round == 1 {
					block(path, aside)
				}
			}
		}

		_, err := engine.Run(ctx, c.experiment(t), set)
		stop()
		if _, steps := set.Client.Tracer.(*after); err == nil && !(steps && c.learnsNothing()) {
			t.Errorf("%s: the run was not broken off", in.name)
			continue
		}

		if in.blocked != "" {
			goldentest.NoError(t, errors.Join(os.RemoveAll(path), os.Rename(aside, path)))
		}

		run(t, c.experiment(t), engine.Settings{Dir: dir, Resume: true})
		want.same(t, outcomeIn(t, dir), in.name)
	}
}

// longer: a finished run that continues with more rounds has the bytes of a run with these rounds from the start, or is
// refused because the method depends on the number of rounds.
func (c Case) longer(t *testing.T) {
	dir := t.TempDir()
	short := c.experiment(t)
	short.Plan.Rounds-- // to a round with a test
	run(t, short, engine.Settings{Dir: dir})
	set := engine.Settings{Dir: dir, Resume: true}
	_, err := engine.Run(context.Background(), c.experiment(t), set)
	if err == nil {
		c.plain(t).same(t, outcomeIn(t, dir), "with more rounds")
	} else if !strings.Contains(err.Error(), "train.rounds") || !strings.Contains(err.Error(), "set it to "+
		strconv.Itoa(short.Plan.Rounds)) {
		t.Error(err)
	}
}

func (c Case) learnsNothing() bool { return len(c.Names.Shared)+len(c.Names.Private) == 0 }

// lost: a round ends without a client whose answer is lost, and that client keeps its earlier state.
func (c Case) lost(t *testing.T) {
	experiment := c.experiment(t)
	experiment.Plan.Participation, experiment.Plan.Rounds = 1, 1
	before := run(t, experiment, engine.Settings{})
	experiment.Plan.Rounds = 2
	after := run(t, experiment, engine.Settings{Wrap: LoseReplies(func(round, client int) bool {
		return round == 1 && client == 1
	})})
	if got := after.Records[1].Clients; len(got) != 3 || got[1] != 2 {
		t.Errorf("round 1 counted clients %v, want 0, 2 and 3", got)
	}

	for _, client := range []int{0, 1, 2, 3} {
		at := "client/" + strconv.Itoa(client)
		was, is := before.Prompts.WithoutPrefix(at), after.Prompts.WithoutPrefix(at)
		if len(was) != len(is) {
			t.Errorf("client %d remembers %v after %v", client, is.Names(), was.Names())
		}
		for name := range was {
			_, param, _ := strings.Cut(name, "/")
			if same := equal(was[name], is[name]); same && slices.Contains(c.Names.idle(), param) {
				continue // it may be the same again
			} else if same != (client == 1) {
				t.Errorf("client %d: %s stayed as it was: %v", client, name, same)
			}
		}
	}
}
