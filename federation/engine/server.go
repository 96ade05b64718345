package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"promptfed/federation/method"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Plan is what the server decides: who trains when, and what is tested.
type Plan struct {
	Rounds        int
	Clients       int
	Participation float64 // share of clients that train in a round
	Poisson       bool    // each client is drawn by itself, with Participation for probability; a round may have nobody
	TestEvery     int     // rounds between tests; the last round is always tested
	// the evaluation that a round's headline is of: global, personal, or the method's own (also when empty)
	View     string
	Seed     uint64
	Trainers []int // who may train and answer surveys; empty for all
	// who never trains and is tested after some steps of its own only, sorted; none of Trainers
	New   []int
	Peers []method.ClientInfo // of each client
}

// Server runs the rounds. It holds no client's object, data or private state.
type Server struct {
	Method method.Method
	Cohort Cohort
	Plan   Plan
	Rate   optim.Rate // learning rate by round, for reports
	Tracer Tracer
	Exams  []string // evaluation sets
	Terms  bool     // whether clients measure the terms of their losses
	Global method.Global
	// Known gives the clients as they are known by now where some may join later; nil where all are there from the
	// start.
	Known func() []method.ClientInfo
	// Limited is what was refused of clients elsewhere, and cut, since it was asked last; nil where none are.
	Limited func() Limited
	// Noise is where the noise of differential privacy and the draw of a round's clients come from; nil for the seed.
	Noise *Noise
	Past  []Record // of the rounds before

	Evaluate  Evaluate
	Confusion *Confusion // of the last round that may be the result; nil for none

	c       *compiler
	shared  *sharedOptimizer // of the clients; nil for none
	has     Evaluable
	view    method.View         // of the headline
	joined  []method.ClientInfo // the clients that the method knows of
	surveys []method.Statistic  // of the round
}

// start draws the shared parameters and lets the method add what it needs.
func (s *Server) start(task method.Task) error {
	s.Global = method.Global{Rounds: s.Plan.Rounds, Clients: s.Plan.Clients, Classes: task.Classes, Seed: s.Plan.Seed, Width: task.Width,
		Infos: s.Plan.Peers,
		Drawn: s.Plan.Sampling(), Shared: tensor.Map{}, Broadcast: tensor.Map{}, PerClient: map[int]tensor.Map{},
		State: tensor.Map{}}
	for _, p := range s.Method.Params(task) {
		if p.Owner == method.Shared {
			s.Global.Shared[p.Name] = method.Draw(s.Plan.Seed, -1, p.Name, p.Shape, p.Std)
		}
	}
	s.joined = s.Plan.Peers
	if err := s.Method.Start(&s.Global); err != nil {
		return err
	}
	if s.Tracer != nil {
		traceAll(s.Tracer, "init", s.Global.Shared)
	}
	return nil
}

// participants draws who trains in a round. What sampling adds to privacy it adds only where the draw is secret.
func (s *Server) participants(round int) []int {
	if s.Noise != nil {
		return s.Plan.participants(s.Noise.Rand("participants", strconv.Itoa(round)))
	}
	return s.Plan.participants(method.Rand(s.Plan.Seed, "participants", strconv.Itoa(round)))
}

func (p Plan) participants(r *rand.Rand) []int {
	may, n := p.trainers(), p.Sampling()
	pick := []int{}
	if n.Poisson {
		for _, id := range may {
			if r.Float64()*float64(n.Of) < n.Size {
				pick = append(pick, id)
			}
		}
		return pick
	}
	for _, i := range r.Perm(len(may))[:int(n.Size)] {
		pick = append(pick, may[i])
	}
	slices.Sort(pick)
	return pick
}

// Sampling is how participants draws.
func (p Plan) Sampling() method.Sampling {
	s := method.Sampling{Of: len(p.trainers()), Poisson: p.Poisson}
	s.Size = float64(s.Of)
	if p.Participation > 0 && p.Participation < 1 {
		s.Size *= p.Participation
		if !p.Poisson {
			s.Size = math.Max(1, math.Floor(s.Size+0.5))
		}
	}
	return s
}

// trainers are the clients that may train.
func (p Plan) trainers() []int {
	if len(p.Trainers) > 0 {
		return p.Trainers
	}
	return all(p.Clients)
}

// round runs one round: surveys, training, merge, test.
func (s *Server) round(ctx context.Context) (Record, error) {
	began := time.Now()
	g := &s.Global
	g.Fit = s.fit
	if s.Noise != nil {
		g.Noise = s.Noise.of(g.Round, false)
	}
	if err := s.joinNew(); err != nil {
		return Record{}, fmt.Errorf("round %d: %w", g.Round, err)
	}
	rec := Record{Round: g.Round, Clients: s.participants(g.Round), LR: s.Rate(g.Round)}
	order := Order{Round: g.Round, Clients: rec.Clients, Of: s.Plan.Clients, Shared: g.Shared, Down: g.Broadcast,
		Each: g.PerClient}

	for _, q := range s.surveys {
		ask := order
		ask.Kind, ask.Survey, ask.Clients = Ask, q.Name, s.Plan.trainers()
		down, kept := maps.Clone(g.Broadcast), maps.Clone(g.State)
		each := map[int]tensor.Map{}
		for id, m := range g.PerClient {
			each[id] = maps.Clone(m)
		}
		replies, err := s.send(ctx, ask, &rec)
		if err == nil && len(replies) > 0 {
			_, err = s.sift(g, replies, q.Aggregate)
		}
		if err != nil {
			return rec, fmt.Errorf("round %d, survey %s: %w", g.Round, q.Name, err)
		}
		if s.Tracer != nil {
			traceChanged(s.Tracer, fmt.Sprintf("r%d/survey/%s/digest", g.Round, q.Name), g, down, kept, each)
		}
		order.Down, order.Each = g.Broadcast, g.PerClient
	}

	order.Kind = Train
	var replies []Reply
	if len(order.Clients) > 0 {
		var err error
		if replies, err = s.send(ctx, order, &rec); err != nil {
			return rec, err
		}
		rec.Clients = clients(replies)
	}
	for _, r := range replies {
		if err := checkUpload(g.Shared, r.Upload); err != nil {
			return rec, fmt.Errorf("round %d, client %d: %w", g.Round, r.Client, err)
		}
	}
	g.Notes = map[string]float64{}
	merged := replies
	if len(replies) > 0 || len(order.Clients) == 0 { // where all failed there is nothing to merge
		var err error
		if merged, err = s.sift(g, replies, s.Method.Merge); err != nil {
			return rec, fmt.Errorf("round %d, merge: %w", g.Round, err)
		}
	}
	if len(merged) < len(replies) {
		rec.Clients = clients(merged)
	}
	for _, r := range merged {
		rec.Loss += r.Stats.Loss / float64(len(merged))
		maps.Copy(g.Notes, r.Notes)
		rec.Warnings = append(rec.Warnings, r.Warnings...)
	}
	rec.Notes = g.Notes
	if s.Terms {
		rec.Terms = meanTerms(merged)
	}
	parts := []tensor.Map{g.Shared, g.Broadcast, g.State}
	for _, id := range slices.Sorted(maps.Keys(g.PerClient)) {
		parts = append(parts, g.PerClient[id])
	}
	for _, part := range parts {
		if err := finite("", part); err != nil {
			return rec, fmt.Errorf("round %d, merge: %w", g.Round, err)
		}
	}
	if s.Tracer != nil {
		at := fmt.Sprintf("r%d/", g.Round)
		traceAll(s.Tracer, at+"merged", g.Shared)
		traceAll(s.Tracer, at+"down", g.Broadcast)
		traceAll(s.Tracer, at+"kept", g.State)
	}
	if err := s.Cohort.Accept(g.Round, rec.Clients); err != nil {
		return rec, err
	}
	if (g.Round+1)%max(1, s.Plan.TestEvery) == 0 || g.Round+1 == s.Plan.Rounds {
		if err := s.testing(ctx, &rec); err != nil {
			return rec, err
		}
	}
	if s.Limited != nil {
		rec.Limited = s.Limited()
	}
	rec.Seconds = time.Since(began).Seconds()
	g.Round++
	return rec, nil
}

// send runs one order and counts its bytes.
func (s *Server) send(ctx context.Context, o Order, rec *Record) ([]Reply, error) {
	replies, err := s.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	// clients elsewhere may all have failed, which is their own affair
	if _, remote := s.Cohort.(Suspicious); len(replies) == 0 && !remote {
		return nil, fmt.Errorf("round %d: no client answered", o.Round)
	}
	s.updateInfos() // some may have joined to answer
	sortReplies(replies)
	for _, r := range replies {
		rec.BytesUp += r.Up
		rec.BytesDown += r.Down
	}
	return replies, nil
}

func uploads(replies []Reply) []method.Upload {
	out := make([]method.Upload, len(replies))
	for i, r := range replies {
		out[i] = r.Upload
	}
	return out
}

// clients are those behind replies, sorted.
func clients(replies []Reply) []int {
	var out []int
	for _, r := range replies {
		if r.Sum != nil {
			out = append(out, r.Sum...)
		} else {
			out = append(out, r.Client)
		}
	}
	slices.Sort(out)
	return out
}

// checkUpload refuses what cannot be averaged with the shared parameters, or would spoil the average.
func checkUpload(shared tensor.Map, u method.Upload) error {
	if u.N < 1 {
		return fmt.Errorf("the upload counts %d examples; it must count 1 or more", u.N)
	}
	for _, name := range shared.Names() {
		if t := u.Shared[name]; t == nil || !t.SameShape(shared[name]) {
			return fmt.Errorf("the upload has %v for parameter %s, which is %v; the client runs another experiment", t,
				name, shared[name])
		}
	}
	if len(u.Shared) != len(shared) {
		return fmt.Errorf("the upload has parameters %v, the server %v; the client runs another experiment",
			u.Shared.Names(), shared.Names())
	}
	return finite("upload ", uploadTensors(u))
}

// traceChanged records what a digest added to the server's state or replaced in it.
func traceChanged(t Tracer, under string, g *method.Global, down, kept tensor.Map, each map[int]tensor.Map) {
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

func traceAll(t Tracer, under string, m tensor.Map) {
	for k, v := range m {
		t.Put(under+"/"+k, v)
	}
}
