package trace

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// server records the server's side of a run around its cohort.
type server struct {
	message.Cohort
	tracer  Tracer
	global  *method.Global
	began   bool            // the first state is recorded
	answers *statistic      // of the statistic that the server aggregates; nil for none
	replies []message.Reply // of the clients that trained in the round
	merged  []int           // clients
}

// statistic is the server's state before the aggregate of a statistic.
type statistic struct {
	under      string // names of its tensors
	down, kept tensor.Map
	each       map[int]tensor.Map
}

// Server returns a layer around a cohort that records the state of the server: the first one with everything that it
// drew, what the aggregate of each statistic adds or replaces, and after each merge the state and the random numbers
// that the round drew on the server.
func Server(inner message.Cohort, t Tracer, global *method.Global) message.Cohort {
	s := &server{Cohort: inner, tracer: t, global: global}
	s.draw()
	return s
}

// draw begins to count the random numbers of the server. Each is recorded under the round that draws it.
func (s *server) draw() {
	s.global.Draws = method.NewDraws(func(name string, t *tensor.Tensor) {
		s.tracer.Put(fmt.Sprintf("r%d/draw/%s", s.global.Round, name), t)
	})
}

// Run records what happened since the last instruction.
func (s *server) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	global := s.global
	if !s.began {
		s.began = true
		TraceAll(s.tracer, "init", global.Shared)
		s.state("start/")
		for id, m := range global.PerClient {
			TraceAll(s.tracer, fmt.Sprintf("start/c%d/down", id), m)
		}
	}

	s.aggregated()
	if instruction.Kind == message.Compute {
		s.answers = &statistic{under: fmt.Sprintf("r%d/statistic/%s/aggregate", global.Round, instruction.Statistic),
			down: maps.Clone(global.Broadcast), kept: maps.Clone(global.State), each: map[int]tensor.Map{}}
		for id, m := range global.PerClient {
			s.answers.each[id] = maps.Clone(m)
		}
	}

	replies, err := s.Cohort.Run(ctx, instruction)
	if instruction.Kind == message.Train {
		s.replies = replies
		s.draw()
	}

	return replies, err
}

func (s *server) state(at string) {
	TraceAll(s.tracer, at+"down", s.global.Broadcast)
	TraceAll(s.tracer, at+"kept", s.global.State)
}

// aggregated records the tensors that the aggregate of a statistic added to the server's state or replaced.
func (s *server) aggregated() {
	before := s.answers
	if s.answers = nil; before == nil {
		return
	}

	changed := func(under string, now, before tensor.Map) {
		for name, v := range now {
			if before[name] != v {
				s.tracer.Put(under+"/"+name, v)
			}
		}
	}

	changed(before.under, s.global.Broadcast, before.down)
	changed(before.under, s.global.State, before.kept)
	for id, now := range s.global.PerClient {
		changed(fmt.Sprintf("%s/c%d", before.under, id), now, before.each[id])
	}
}

// Accept records the state after a merge.
func (s *server) Accept(round int, clients []int) error {
	s.aggregated()
	at := fmt.Sprintf("r%d/", round)
	TraceAll(s.tracer, at+"merged", s.global.Shared)
	s.state(at)
	s.merged = clients
	if n := s.global.Draws.Unrecorded(); n > 0 {
		return fmt.Errorf("round %d, merge: the trace lacks %d of the random numbers that the method drew; draw them "+
			"with Global.Draws", round+1, n)
	}

	return s.Cohort.Accept(round, clients)
}

// Report records the round.
func (s *server) Report() message.Report {
	out := s.Cohort.Report()
	record := RoundRecord{Round: s.global.Round, Merged: s.merged}
	for _, reply := range s.replies {
		counts := func(client int) bool { return slices.Contains(s.merged, client) }
		if slices.ContainsFunc(message.ClientsOf([]message.Reply{reply}), counts) {
			record.Examples = append(record.Examples, reply.Upload.N)
		}
	}

	if out.Simulated != nil {
		record.Staleness = out.Simulated.Staleness
	}

	s.tracer.Round(record)
	s.replies, s.merged = nil, nil
	return out
}
