package local

import (
	"context"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Pretrain trains the shared parameters. What a client keeps to itself is drawn as the first client's is, and thrown
// away; nothing is merged, so that what else the server holds is as the method starts it.
func (w *Worker) Pretrain(ctx context.Context, of *spec.Synthetic, o message.Instruction) (tensor.Map, error) {
	first := *w
	first.Tracer, first.Terms, first.pretrains = nil, false, true
	first.Training.Epochs, first.Training.Overrides = of.Epochs, nil
	first.Training.Schedule = optim.Schedule{Kind: "constant"}
	up, _, _, err := first.Train(ctx, &spec.Client{Backbone: of.Backbone, Train: of.Data}, o, message.ClientState{})
	return up.Shared, err
}
