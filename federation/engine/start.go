package engine

import (
	"context"
	"fmt"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
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

// InitialParams returns the parameters that a client has before round 0, by the names of PromptsFile.
func InitialParams(e *spec.Experiment, c *spec.Client) (tensor.Map, error) {
	s := &Server{Experiment: e}
	participants := s.participants()
	s.Plan = e.PlanFor(participants)
	if err := s.start(e.Task(e.Clients[0])); err != nil {
		return nil, err
	}
	out := tensor.Map{}.Put("shared", s.Global.Shared).Put(state.DownFolder, state.ClientBroadcasts(e, &s.Global,
		participants))
	for _, p := range e.Method.Params(e.Task(c)) {
		if p.Owner == method.Private {
			out["client/"+strconv.Itoa(c.ID)+"/private/"+p.Name] = p.Initial(e.Plan.Seed, c.ID)
		}
	}
	return out, nil
}
