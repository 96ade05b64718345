package methodtest

import (
	"context"
	"slices"

	"promptfed/federation/engine/message"
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
