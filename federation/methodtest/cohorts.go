package methodtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
)

// edited is a cohort whose replies a function changes.
type edited struct {
	message.Cohort
	edit func(message.Instruction, []message.Reply) ([]message.Reply, error)
}

func (e edited) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	replies, err := e.Cohort.Run(ctx, instruction)
	if err != nil {
		return replies, err
	}
	return e.edit(instruction, replies)
}

// LoseReplies returns a layer for engine.Settings.Wrap that loses a client's replies in a round, as when a client
// leaves: the round goes on with the others, and the client keeps its state from before. Tests are not lost.
func LoseReplies(lost func(round, client int) bool) func(message.Cohort) message.Cohort {
	return func(inner message.Cohort) message.Cohort {
		return edited{inner, func(instruction message.Instruction, replies []message.Reply) ([]message.Reply, error) {
			return slices.DeleteFunc(replies, func(r message.Reply) bool {
				return !instruction.Kind.Tests() && lost(instruction.Round, r.Client)
			}), nil
		}}
	}
}

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
