package engine

import (
	"context"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// pretrain trains the shared parameters. What a client keeps to itself is drawn as the first client's is, and thrown away;
// nothing is merged, so that what else the server holds is as the method starts it.
func (w *Worker) pretrain(ctx context.Context, of *Synthetic, o Order) (tensor.Map, error) {
	first := *w
	first.Tracer, first.Terms, first.pretrains = nil, false, true
	first.Train.Epochs, first.Train.Each = of.Epochs, nil
	first.Train.Schedule = optim.Schedule{Kind: "constant"}
	up, _, _, err := first.RunTrain(ctx, &Client{Backbone: of.Backbone, Train: of.Data}, o, State{})
	return up.Shared, err
}
