package engine

import (
	"context"
	"fmt"
)

// warm trains the shared parameters on synthetic images before round 0.
func (s *Server) warm(ctx context.Context, of *Synthetic) error {
	g := &s.Global
	shared, err := s.worker.pretrain(ctx, of, Order{Kind: Train, Clients: []int{0}, Of: s.Plan.Clients, Shared: g.Shared,
		Down: g.Broadcast, Each: g.PerClient})
	if err != nil {
		return fmt.Errorf("synthetic images: %w", err)
	}
	g.Shared = shared
	if s.Tracer != nil {
		traceAll(s.Tracer, "init", g.Shared)
	}
	return nil
}
