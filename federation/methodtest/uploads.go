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
func Uploads(t *testing.T, e *spec.Experiment, set client.Settings, sent func(client int,
	message []byte)) client.RemoteExecutor {
	w := client.NewWorker(e, set)
	t.Cleanup(func() { w.Close() })
	return uploads{w, sent}
}

type uploads struct {
	*client.Worker
	sent func(client int, message []byte)
}

func (u uploads) Execute(ctx context.Context, c *spec.Client, o message.Instruction, state func() (
	message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	s, err := state()
	if err != nil {
		return message.Reply{}, nil, err
	}

	r, next, err := u.Worker.Execute(ctx, c, o, s)
	if err == nil && !o.Kind.Tests() {
		b, failed := message.EncodeTensors(r.Tensors())
		u.sent(c.ID, b)
		err = errors.Join(err, failed)
	}

	return r, next, err
}
