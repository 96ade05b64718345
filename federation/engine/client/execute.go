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
func (w *Worker) Execute(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state message.ClientState) (reply message.Reply, next *message.ClientState, err error) {
	reply.Client = client.ID
	switch instruction.Kind {
	case message.Train:
		var after message.ClientState
		reply, after, err = w.Train(ctx, client, instruction, state)
		next = &after
	case message.Compute:
		reply.Upload, err = w.ComputeStatistic(ctx, client, instruction, state)
	case message.Test:
		instruction.Confusion = instruction.Confusion && w.Experiment.Evaluate.Confusion
		reply.Scores, err = w.Test(ctx, client, instruction, state)
	case message.Validate:
		reply.Scores, err = w.validate(ctx, client, instruction, state)
	case message.Adapt:
		reply.Scores, err = w.adapt(ctx, client, instruction)
	default:
		err = fmt.Errorf("unknown instruction %q", instruction.Kind)
	}

	if err == nil {
		if err = message.CheckFinite("upload ", message.UploadTensors(reply.Upload)); err != nil {
			err = ofTurn(client, instruction, err)
		}
	}

	if err != nil {
		return message.Reply{Client: client.ID}, nil, err
	}

	return reply, next, nil
}

// RemoteExecutor executes an instruction for one client, as Worker.Execute does. state returns the client's state,
// which need not be in memory before it is needed. It must be safe for concurrent use.
type RemoteExecutor interface {
	Execute(ctx context.Context, client *spec.Client, instruction message.Instruction,
		state func() (message.ClientState, error)) (r message.Reply, next *message.ClientState, err error)
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
func (x Executed) execute(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	guard := x.Settings.Guard
	if guard == nil {
		return x.By.Execute(ctx, client, instruction, state)
	}

	if instruction.Kind == message.Compute {
		if answer, ok, err := guard.Answer(client.ID, instruction); ok || err != nil {
			return message.Reply{Client: client.ID, Upload: method.Upload{Client: client.ID, N: 1, Extra: answer}},
				nil, err
		}
	}

	open := instruction
	open.Guarded, open.Broadcast = nil, message.WithoutGuardPart(instruction.Broadcast)
	if e, ok := instruction.PerClient[client.ID]; ok {
		open.PerClient = map[int]tensor.Map{client.ID: message.WithoutGuardPart(e)}
	}

	r, next, err := x.By.Execute(ctx, client, open, state)
	if err == nil && instruction.Kind == message.Train {
		err = guard.Protect(client.ID, instruction, &r.Upload, &r.Stats)
	}

	return r, next, err
}
