package engine

import (
	"context"
	"errors"
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/optim"
)

// Synthetic is data of the server's own on which it trains the shared parameters before round 0, as a client would.
type Synthetic struct {
	Backbone Backbone
	Data     method.Data
	Epochs   int
}

// check finds what cannot work.
func (s *Synthetic) check(classes int) error {
	if s.Epochs < 1 {
		return fmt.Errorf("synthetic.epochs is %d; it must be 1 or more", s.Epochs)
	}
	if s.Data.Len() == 0 {
		return errors.New("the synthetic set has no images")
	}
	for _, y := range s.Data.Labels() {
		if y < 0 || y >= int64(classes) {
			return fmt.Errorf("the synthetic set has label %d, but there are %d classes", y, classes)
		}
	}
	return nil
}

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
