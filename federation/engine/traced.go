package engine

import (
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// traceStart records the server's first state, with everything that it drew.
func (s *Server) traceStart() {
	if s.settings.Client.Tracer == nil {
		return
	}
	g := &s.Global
	trace.TraceAll(s.settings.Client.Tracer, "init", g.Shared)
	trace.TraceAll(s.settings.Client.Tracer, "start/down", g.Broadcast)
	trace.TraceAll(s.settings.Client.Tracer, "start/kept", g.State)
	for id, m := range g.PerClient {
		trace.TraceAll(s.settings.Client.Tracer, fmt.Sprintf("start/c%d/down", id), m)
	}
}

// recordDraws records the random numbers that the merge of a round draws.
func (s *Server) recordDraws() {
	if s.settings.Client.Tracer == nil {
		return
	}
	at := fmt.Sprintf("r%d/draw/", s.Global.Round)
	s.Global.Draws = method.NewDraws(func(name string, t *tensor.Tensor) { s.settings.Client.Tracer.Put(at+name, t) })
}

func (s *Server) traceMerge(merged []message.Reply, rec record.Record) error {
	if s.settings.Client.Tracer == nil {
		return nil
	}
	g := &s.Global
	at := fmt.Sprintf("r%d/", g.Round)
	trace.TraceAll(s.settings.Client.Tracer, at+"merged", g.Shared)
	trace.TraceAll(s.settings.Client.Tracer, at+"down", g.Broadcast)
	trace.TraceAll(s.settings.Client.Tracer, at+"kept", g.State)
	round := trace.RoundRecord{Round: g.Round, Merged: message.ClientsOf(merged)}
	for _, r := range merged {
		round.Examples = append(round.Examples, r.Upload.N)
	}
	if rec.Simulated != nil {
		round.Staleness = rec.Simulated.Staleness
	}
	s.settings.Client.Tracer.Round(round)
	if n := g.Draws.Unrecorded(); n > 0 {
		return fmt.Errorf("the trace lacks %d of the random numbers that the method drew; draw them with Global.Draws",
			n)
	}
	return nil
}

// traceChanged records the tensors that the aggregate of a statistic added to the server's state or replaced.
func traceChanged(t trace.Tracer, under string, g *method.Global, down, kept tensor.Map, each map[int]tensor.Map) {
	changed := func(under string, now, before tensor.Map) {
		for name, v := range now {
			if before[name] != v {
				t.Put(under+"/"+name, v)
			}
		}
	}
	changed(under, g.Broadcast, down)
	changed(under, g.State, kept)
	for id, now := range g.PerClient {
		changed(fmt.Sprintf("%s/c%d", under, id), now, each[id])
	}
}
