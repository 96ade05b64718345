package local

import (
	"context"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// RemoteExecutor does what an instruction asks of one client, as Worker.Execute does; state gives what the client
// remembers, which need not be in memory before the instruction can be done. It must be safe for concurrent use.
type RemoteExecutor interface {
	Execute(ctx context.Context, c *spec.Client, o message.Instruction, state func() (message.ClientState,
		error)) (r message.Reply, next *message.ClientState, err error)
}

// ExecuteRemotely lets something else do a client's turn. The client's Guard stays here, since what it remembers must
// not travel: the other side gets the instruction without what is for the guard.
func (w *Worker) ExecuteRemotely(ctx context.Context, by RemoteExecutor, c *spec.Client, o message.Instruction,
	state func() (message.ClientState, error)) (message.Reply,
	*message.ClientState, error) {
	if w.Guard == nil {
		return by.Execute(ctx, c, o, state)
	}
	if o.Kind == message.Compute {
		if answer, ok, err := w.Guard.Answer(c.ID, o); ok || err != nil {
			return message.Reply{Client: c.ID, Upload: method.Upload{Client: c.ID, N: 1, Extra: answer}}, nil, err
		}
	}
	open := o
	open.Protected, open.Broadcast = false, withoutGuardPart(o.Broadcast)
	if e, ok := o.PerClient[c.ID]; ok {
		open.PerClient = map[int]tensor.Map{c.ID: withoutGuardPart(e)}
	}
	r, next, err := by.Execute(ctx, c, open, state)
	if err == nil && o.Kind == message.Train {
		err = w.Guard.Protect(c.ID, o, &r.Upload, &r.Stats)
	}
	return r, next, err
}

func withoutGuardPart(m tensor.Map) tensor.Map {
	out := tensor.Map{}
	for name, t := range m {
		if !strings.HasPrefix(name, message.GuardPart+"/") {
			out[name] = t
		}
	}
	return out
}
