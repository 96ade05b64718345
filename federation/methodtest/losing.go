package methodtest

import (
	"context"
	"slices"

	"promptfed/federation/engine/message"
)

// LoseReplies returns a layer for engine.Settings.Wrap that loses a client's replies in a round, as when a client
// leaves: the round goes on with the others, and the client keeps its state from before. Tests are not lost.
func LoseReplies(lost func(round, client int) bool) func(message.Cohort) message.Cohort {
	return func(c message.Cohort) message.Cohort { return losing{c, lost} }
}

type losing struct {
	message.Cohort
	lost func(round, client int) bool
}

func (l losing) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	replies, err := l.Cohort.Run(ctx, instruction)
	return slices.DeleteFunc(replies, func(r message.Reply) bool {
		return !instruction.Kind.Tests() && l.lost(instruction.Round, r.Client)
	}), err
}
