package transport

import (
	"context"

	"promptfed/federation/engine"
)

// LocalExecutor is the part of one client of an experiment on this machine.
type LocalExecutor struct {
	Worker     *engine.Worker
	Experiment *engine.Experiment
	Client     *engine.Client
	Path       string // of the file that it leaves, in the form of engine.PromptsFile
}

// Answer does what an order asks.
func (p LocalExecutor) Answer(ctx context.Context, o engine.Order, s engine.State) (engine.Reply, *engine.State,
	error) {
	return p.Worker.Answer(ctx, p.Client, o, s)
}

// Rounds is how many the experiment has. Orders of others are none.
func (p LocalExecutor) Rounds() int { return p.Experiment.Plan.Rounds }

// Finish writes what the client classifies with.
func (p LocalExecutor) Finish(o engine.Order, s engine.State) error {
	return p.Experiment.WriteOwn(p.Path, p.Client, o, s)
}
