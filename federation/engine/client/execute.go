package client

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Execute executes an instruction for one client with state s. next is the client's state if its upload counts, nil for
// an unchanged one.
func (w *Worker) Execute(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (r message.Reply, next *message.ClientState, err error) {
	r.Client = c.ID
	switch o.Kind {
	case message.Train:
		var after message.ClientState
		r, after, err = w.Train(ctx, c, o, s)
		next = &after
	case message.Compute:
		r.Upload, err = w.ComputeStatistic(c, o, s)
	case message.Test:
		o.Confusion = o.Confusion && w.Experiment.Evaluate.Confusion
		r.Scores, err = w.Test(ctx, c, o, s)
	case message.Validate:
		r.Scores, err = w.validate(ctx, c, o, s)
	case message.Adapt:
		r.Scores, err = w.adapt(ctx, c, o)
	default:
		err = fmt.Errorf("unknown instruction %q", o.Kind)
	}
	if err == nil {
		if err = checkReply(r); err != nil {
			err = ofTurn(c, o, err)
		}
	}
	if err != nil {
		return message.Reply{Client: c.ID}, nil, err
	}
	return r, next, nil
}

// checkReply refuses tensors that hold NaN or infinities.
func checkReply(r message.Reply) error {
	return message.CheckFinite("upload ", message.UploadTensors(r.Upload))
}

// RemoteExecutor executes an instruction for one client, as Worker.Execute does. state returns the client's state,
// which need not be in memory before it is needed. It must be safe for concurrent use.
type RemoteExecutor interface {
	Execute(ctx context.Context, c *spec.Client, o message.Instruction, state func() (message.ClientState,
		error)) (r message.Reply, next *message.ClientState, err error)
}

// Remembers returns the state of a client for a Job.
func Remembers(s message.ClientState) func() (message.ClientState, error) {
	return func() (message.ClientState, error) { return s, nil }
}

// Executed is a Worker whose turns an executor does, each alone.
type Executed struct {
	*Worker
	By RemoteExecutor
}

// Groups divides jobs into groups of one.
func (x Executed) Groups(_ context.Context, jobs []Job, _ int) ([][]int, error) {
	return alone(jobs), nil
}

// Turns lets the executor do a client's turn.
func (x Executed) Turns(ctx context.Context, jobs []Job) ([]message.Reply, []*message.ClientState, error) {
	r, next, err := x.execute(ctx, jobs[0].Client, jobs[0].Instruction, jobs[0].State)
	return []message.Reply{r}, []*message.ClientState{next}, err
}

// execute keeps the client's Guard here, since its state must not be sent: the executor gets the instruction without
// the tensors of the guard.
func (x Executed) execute(ctx context.Context, c *spec.Client, o message.Instruction,
	state func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	guard := x.Settings.Guard
	if guard == nil {
		return x.By.Execute(ctx, c, o, state)
	}
	if o.Kind == message.Compute {
		if answer, ok, err := guard.Answer(c.ID, o); ok || err != nil {
			return message.Reply{Client: c.ID, Upload: method.Upload{Client: c.ID, N: 1, Extra: answer}}, nil, err
		}
	}
	open := o
	open.Guarded, open.Broadcast = nil, message.WithoutGuardPart(o.Broadcast)
	if e, ok := o.PerClient[c.ID]; ok {
		open.PerClient = map[int]tensor.Map{c.ID: message.WithoutGuardPart(e)}
	}
	r, next, err := x.By.Execute(ctx, c, open, state)
	if err == nil && o.Kind == message.Train {
		err = guard.Protect(c.ID, o, &r.Upload, &r.Stats)
	}
	return r, next, err
}
