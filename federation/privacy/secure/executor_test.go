package secure_test

import (
	"context"
	"strings"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// unguarded executes instructions with a worker without a guard, and checks its input.
type unguarded struct {
	t      *testing.T
	of     *spec.Experiment
	worker *client.Worker
}

func (u unguarded) Execute(ctx context.Context, c *spec.Client, o message.Instruction,
	state func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	for _, name := range o.Tensors().Names() {
		if strings.Contains(name, message.GuardPart+"/") {
			u.t.Errorf("%s order of round %d holds %s, which is for the guard", o.Kind, o.Round, name)
		}
	}
	s, err := state()
	if err != nil {
		return message.Reply{}, nil, err
	}
	return u.worker.Execute(ctx, u.of.Clients[c.ID], o, s)
}

// If other machines train the clients, the guards stay with the run, and the sums equal those of one process.
func TestRemoteExecutor(t *testing.T) {
	e, l := experiment(t, config, "promptfl", nil, options{"tokens": 2})
	want := enginetest.Run(t, e, over(l, false))
	e, l = experiment(t, config, "promptfl", nil, options{"tokens": 2})
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	set := over(l, false)
	set.Executor = unguarded{t, e, w}
	if d := maxDiff(t, enginetest.Run(t, e, set), want); d != 0 {
		t.Errorf("prompts are %g from those of one process", d)
	}
}
