package transport

import (
	"context"

	"promptfed/federation/engine/local"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
)

// Local is the part of one client of an experiment on this machine.
type Local struct {
	Worker     *local.Worker
	Experiment *spec.Experiment
	Client     *spec.Client
	Path       string // of the file that it leaves, in the form of engine.PromptsFile
}

// Answer does what an order asks.
func (p Local) Answer(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	return p.Worker.Execute(ctx, p.Client, o, s)
}

// Rounds is how many the experiment has. Orders of others are none.
func (p Local) Rounds() int { return p.Experiment.Plan.Rounds }

// Finish writes what the client classifies with.
func (p Local) Finish(o message.Instruction, s message.ClientState) error {
	return state.WriteOwn(p.Experiment, p.Path, p.Client, o, s)
}
