package secure_test

import (
	"context"
	"strings"
	"testing"

	"promptfed/federation/engine"
)

// unguarded does turns with a worker that has no guard, and looks at what it is given.
type unguarded struct {
	t      *testing.T
	of     *engine.Experiment
	worker *engine.Worker
}

func (u unguarded) Answer(ctx context.Context, c *engine.Client, o engine.Order,
	state func() (engine.State, error)) (engine.Reply, *engine.State, error) {
	for _, name := range o.Tensors().Names() {
		if strings.Contains(name, engine.GuardPart+"/") {
			u.t.Errorf("%s order of round %d holds %s, which is for the guard", o.Kind, o.Round, name)
		}
	}
	s, err := state()
	if err != nil {
		return engine.Reply{}, nil, err
	}
	return u.worker.Answer(ctx, u.of.Clients[c.ID], o, s)
}

// Where turns are done elsewhere, the guards stay with the run, and the sums are those of one process.
func TestTurnsElsewhere(t *testing.T) {
	e, l := experiment(t, config, "promptfl", nil, options{"tokens": 2})
	want := run(t, e, over(l, false))
	e, l = experiment(t, config, "promptfl", nil, options{"tokens": 2})
	w := engine.NewWorker(e, engine.WorkerSettings{})
	defer w.Close()
	set := over(l, false)
	set.Elsewhere = unguarded{t, e, w}
	if d := far(t, run(t, e, set), want); d != 0 {
		t.Errorf("prompts are %g from those of one process", d)
	}
}
