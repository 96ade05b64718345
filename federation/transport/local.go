package transport

import (
	"context"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
)

// LocalExecutor is the part of one client of an experiment on this machine.
type LocalExecutor struct {
	Worker     *client.Worker
	Experiment *spec.Experiment
	Client     *spec.Client
	Path       string // of the file that it leaves, in the form of record.PromptsFile
}

// Execute does what an order asks.
func (p LocalExecutor) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	return p.Worker.Execute(ctx, p.Client, o, s)
}

// Rounds is how many the experiment has.
func (p LocalExecutor) Rounds() int { return p.Experiment.Plan.Rounds }

// Finish writes what the client classifies with.
func (p LocalExecutor) Finish(o message.Instruction, s message.ClientState) error {
	return state.WriteOwn(p.Experiment, p.Path, p.Client, o, s)
}
