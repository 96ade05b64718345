package engine_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
)

// remoteWorker executes turns with a worker of its own, which knows a client by its number only.
type remoteWorker struct {
	of     *spec.Experiment
	worker *client.Worker
	fails  bool
}

func (x remoteWorker) Execute(ctx context.Context, c *spec.Client, o message.Instruction,
	state func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	if x.fails {
		return message.Reply{}, nil, errors.New("no worker")
	}
	s, err := state()
	if err == nil {
		s, err = message.ParseClientState(encoded(s.Tensors()))
	}
	if err != nil {
		return message.Reply{}, nil, err
	}
	return x.worker.Execute(ctx, x.of.Clients[c.ID], o, s)
}

// A remote executor yields the same bytes as a local one. Clients' states are kept in this process.
func TestRemoteExecutor(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	want := mustRun(t, toy(t), engine.Settings{Dir: here, Workers: 2})
	experiment := toy(t)
	w := client.NewWorker(experiment, client.Settings{})
	defer w.Close()
	turns := 0
	got := mustRun(t, toy(t), engine.Settings{Dir: there, Workers: 3, Executor: remoteWorker{of: experiment, worker: w},
		OnRound: func(record.Record) { turns++ }})
	if prompts(t, there) != prompts(t, here) || turns != 3 {
		t.Error("other prompts than in this process")
	}
	for i := range got.Records {
		got.Records[i].Seconds, want.Records[i].Seconds = 0, 0
		got.Records[i].Phases, want.Records[i].Phases = nil, nil
	}
	if !reflect.DeepEqual(got.Records, want.Records) {
		t.Errorf("other records:\n%+v\n%+v", got.Records, want.Records)
	}
	refused(t, toy(t), engine.Settings{Executor: remoteWorker{fails: true}}, "no worker")
}

// A client without validation data has no turn of validation: on a cluster it would be a job for each client and round.
func TestNobodyValidatesWithoutData(t *testing.T) {
	for e, want := range map[*spec.Experiment]int{toy(t): 0, withValidation(t): 3 * 8} { // 3 of 4 clients, 8 rounds
		e.Evaluate.Validate = true
		var turns atomic.Int32
		mustRun(t, e, engine.Settings{OnTurn: func(o message.Instruction, _ int) {
			if o.Kind == message.Validate {
				turns.Add(1)
			}
		}})
		if got := int(turns.Load()); got != want {
			t.Errorf("%d turns, want %d", got, want)
		}
	}
}
