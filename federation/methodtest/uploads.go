package methodtest

import (
	"context"
	"errors"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// Uploads returns an executor for engine.Settings that does clients' turns in this process. sent gets every encoded
// reply that is no test, from any goroutine.
func Uploads(t *testing.T, experiment *spec.Experiment, set client.Settings, sent func(client int,
	message []byte)) client.RemoteExecutor {
	w := client.NewWorker(experiment, set)
	t.Cleanup(func() { w.Close() })
	return uploads{w, sent}
}

type uploads struct {
	*client.Worker
	sent func(client int, message []byte)
}

func (u uploads) Execute(ctx context.Context, site *spec.Client, instruction message.Instruction, state func() (
	message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	s, err := state()
	if err != nil {
		return message.Reply{}, nil, err
	}

	r, next, err := u.Worker.Execute(ctx, site, instruction, s)
	if err == nil && !instruction.Kind.Tests() {
		b, failed := message.EncodeTensors(r.Tensors())
		u.sent(site.ID, b)
		err = errors.Join(err, failed)
	}

	return r, next, err
}
