package engine

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
)

// pretrain trains the shared parameters on synthetic images before round 0.
func (s *Server) pretrain(ctx context.Context, of *spec.Synthetic) error {
	g := &s.Global
	shared, err := s.worker.Pretrain(ctx, of, message.Instruction{Kind: message.Train, Clients: []int{0},
		Total: s.Plan.Clients, Shared: g.Shared, Broadcast: g.Broadcast, PerClient: g.PerClient})
	if err != nil {
		return fmt.Errorf("synthetic images: %w", err)
	}
	g.Shared = shared
	if s.Tracer != nil {
		trace.TraceAll(s.Tracer, "init", g.Shared)
	}
	return nil
}
