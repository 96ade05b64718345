package engine

import (
	"context"
	"fmt"

	"promptfed/runtime/optim"
)

// warm trains the shared parameters. What a client keeps to itself is drawn as the first client's is, and thrown away;
// nothing is merged, so that what else the server holds is as the method starts it.
func (s *Server) warm(ctx context.Context, w *Worker, of *Synthetic) error {
	first := *w
	first.Tracer, first.Terms, first.pretrains = nil, false, true
	first.Train.Epochs, first.Train.Each = of.Epochs, nil
	first.Train.Schedule = optim.Schedule{Kind: "constant"}
	c := &Client{Backbone: of.Backbone, Train: of.Data}
	g := &s.Global
	up, _, _, err := first.RunTrain(ctx, c, Order{Kind: Train, Clients: []int{0}, Of: s.Plan.Clients, Shared: g.Shared,
		Down: g.Broadcast, Each: g.PerClient}, State{})
	if err != nil {
		return fmt.Errorf("synthetic images: %w", err)
	}
	g.Shared = up.Shared
	if s.Tracer != nil {
		traceAll(s.Tracer, "init", g.Shared)
	}
	return nil
}
