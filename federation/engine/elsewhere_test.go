package engine_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"promptfed/federation/engine"
)

// other does turns with a worker of its own, which knows a client by its number only.
type other struct {
	of     *engine.Experiment
	worker *engine.Worker
	fails  bool
}

func (x other) Answer(ctx context.Context, c *engine.Client, o engine.Order,
	state func() (engine.State, error)) (engine.Reply, *engine.State, error) {
	if x.fails {
		return engine.Reply{}, nil, errors.New("no worker")
	}
	s, err := state()
	if err == nil {
		s, err = engine.StateOf(encoded(s.Tensors()))
	}
	if err != nil {
		return engine.Reply{}, nil, err
	}
	return x.worker.Answer(ctx, x.of.Clients[c.ID], o, s)
}

// Turns that something else does give the bytes that they give here; what clients remember is kept here.
func TestTurnsElsewhere(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	want := mustRun(t, toy(t), engine.Settings{Dir: here, Workers: 2})
	of := toy(t)
	w := engine.NewWorker(of, engine.WorkerSettings{})
	defer w.Close()
	turns := 0
	got := mustRun(t, toy(t), engine.Settings{Dir: there, Workers: 3, Elsewhere: other{of: of, worker: w},
		OnRound: func(engine.Record) { turns++ }})
	if prompts(t, there) != prompts(t, here) || turns != 3 {
		t.Error("other prompts than in this process")
	}
	for i := range got.Records {
		got.Records[i].Seconds, want.Records[i].Seconds = 0, 0
	}
	if !reflect.DeepEqual(got.Records, want.Records) {
		t.Errorf("other records:\n%+v\n%+v", got.Records, want.Records)
	}
	refused(t, toy(t), engine.Settings{Elsewhere: other{fails: true}}, "no worker")
}

func TestStateOfRefusesOtherTensors(t *testing.T) {
	m := engine.State{}.Tensors()
	m["shared/ctx"] = nil
	if _, err := engine.StateOf(m); err == nil || !strings.Contains(err.Error(), "shared/ctx") {
		t.Errorf("%v", err)
	}
}
