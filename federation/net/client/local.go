package client

import (
	"context"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
)

// LocalExecutor executes the instructions to one client of an experiment on this machine.
type LocalExecutor struct {
	Worker     *client.Worker
	Experiment *spec.Experiment
	Client     *spec.Client
	Path       string // path of its final file, in the format of record.PromptsFile
}

// Execute executes an instruction.
func (p LocalExecutor) Execute(ctx context.Context, instruction message.Instruction,
	s message.ClientState) (message.Reply, *message.ClientState, error) {
	return p.Worker.Execute(ctx, p.Client, instruction, s)
}

// Rounds returns the number of rounds of the experiment.
func (p LocalExecutor) Rounds() int { return p.Experiment.Plan.Rounds }

// Finish writes the client's classifier.
func (p LocalExecutor) Finish(instruction message.Instruction, s message.ClientState) error {
	return state.WriteClientParams(p.Experiment, p.Path, p.Client, instruction, s)
}
