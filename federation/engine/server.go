package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Server runs the rounds. It holds no client's object, data or private state.
type Server struct {
	settings   Settings
	experiment *spec.Experiment
	Cohort     message.Cohort
	Plan       spec.Plan // of the experiment, for the clients that take part
	Global     method.Global

	fingerprint string // of the experiment, in a run with a folder

	rate       optim.Rate // learning rate by round, for reports
	store      *state.Store
	journal    *record.Journal   // of the rounds before
	confusion  *record.Confusion // of the last round that may be the result; nil for none
	worker     *client.Worker    // of this process
	pool       *Pool             // of this process, idle where the clients are on other machines
	has        record.Evaluable
	view       method.View           // of the headline
	failures   int                   // calls in a row in which the method failed over all of several replies
	known      []method.ClientInfo   // the clients that the method knows of
	statistics []method.Statistic    // of the round
	simulated  *simulatedtime.Cohort // the same Cohort; nil without simulated time
}

// start draws the shared parameters and starts the method.
func (s *Server) start(task method.ClientSpec) error {
	s.Global = method.Global{Rounds: method.Rounds(s.Plan.Rounds), Clients: s.Plan.Clients,
		Classes: task.Classes, Seed: s.Plan.Seed,
		Width: task.Width, Task: task, Infos: s.Plan.Infos, Claimed: s.settings.Remote != nil,
		Sampling: s.Plan.Sampling(),
		Shared:   tensor.Map{}, Broadcast: tensor.Map{}, PerClient: map[int]tensor.Map{}, State: tensor.Map{}}
	for _, p := range s.experiment.Method.Params(task) {
		if p.Owner == method.Shared {
			s.Global.Shared[p.Name] = p.Initial(s.Plan.Seed, -1)
		}
	}
	s.known = s.Plan.Infos
	if s.settings.Client.Tracer != nil {
		s.Global.Draws = method.NewDraws(nil)
	}
	if err := s.experiment.Method.Start(&s.Global); err != nil {
		return err
	}
	s.traceStart()
	return nil
}

// startWithAny starts the method with the task of the first client that joined, and sets what can be tested. Of clients
// on other machines it takes the task that most have, since no single one decides what the others get, and the next one
// if the method fails over it.
func (s *Server) startWithAny(participants []message.Participant) error {
	begin := func(task method.ClientSpec) error {
		if err := s.start(task); err != nil {
			return err
		}
		s.has = record.EvaluableOf(s.experiment.Method, task)
		return nil
	}
	alike := map[method.ClientSpec][]int{}
	kind := func(task method.ClientSpec) method.ClientSpec {
		task.Client = 0
		return task
	}
	var tasks []method.ClientSpec
	for id, p := range participants {
		if !p.Joined {
			continue
		}
		if s.settings.Remote == nil {
			return begin(p.Task)
		}
		if k := kind(p.Task); alike[k] == nil {
			tasks = append(tasks, p.Task)
		}
		alike[kind(p.Task)] = append(alike[kind(p.Task)], id)
	}
	slices.SortStableFunc(tasks, func(a, b method.ClientSpec) int { return len(alike[kind(b)]) - len(alike[kind(a)]) })
	scored := func(task method.ClientSpec) bool {
		return recovered(func(*method.Global, []method.Upload) error {
			scope := method.NewScope(task, s.experiment.Method.Params(task))
			s.experiment.Method.Logits(scope)
			return scope.Graph().Err()
		}, &s.Global, nil) == nil
	}
	if i := slices.IndexFunc(tasks, scored); i > 0 { // sizes without scores say nothing about what can be tested
		tasks = append([]method.ClientSpec{tasks[i]}, slices.Delete(tasks, i, i+1)...)
	}
	failed := map[int]error{}
	var first error
	for _, task := range tasks {
		err := recovered(func(*method.Global, []method.Upload) error { return begin(task) }, &s.Global, nil)
		if err == nil {
			for _, id := range slices.Sorted(maps.Keys(failed)) {
				s.settings.Remote.Rejected(0, id, failed[id])
			}
			return nil
		}
		for _, id := range alike[kind(task)] {
			failed[id] = err
		}
		first = cmp.Or(first, err)
	}
	return first
}

// sample draws the clients that train in a round. Sampling adds to privacy only if the draw is secret.
func (s *Server) sample(round int) []int {
	if s.settings.ServerNoise != nil {
		return s.Plan.Sample(s.settings.ServerNoise.Rand("participants", strconv.Itoa(round)))
	}
	return s.Plan.Sample(method.Rand(s.Plan.Seed, "participants", strconv.Itoa(round)))
}

// hides reports whether the method hides which clients on other machines answered, so that a round without any answer
// has its noise too, and costs as much.
func (s *Server) hides() bool {
	return s.settings.Remote != nil && s.settings.Wrap == nil && s.private()
}

// private reports whether the method hides single clients, as differential privacy does.
func (s *Server) private() bool {
	return method.Any(s.experiment.Method, func(p method.Properties) bool { return p.HidesClients })
}

// drawOthers draws as many others in addition to clients of which no round waits for any, among those that rounds wait
// for; nil where there is no reason, or nobody else. The sample of differential privacy is never drawn again, and
// secure aggregation has a session with the clients that began it.
func (s *Server) drawOthers(drawn []int, again int) []int {
	if s.settings.Remote == nil || s.settings.Wrap != nil || s.hides() {
		return nil
	}
	var others []int
	all := s.participants()
	for _, id := range s.Plan.TrainingClients() {
		switch {
		case !all[id].Joined || all[id].Silent:
		case slices.Contains(drawn, id):
			return nil
		default:
			others = append(others, id)
		}
	}
	if len(others) == 0 {
		return nil
	}
	r := method.Rand(s.Plan.Seed, "participants", strconv.Itoa(s.Global.Round), "again", strconv.Itoa(again))
	out := slices.Clone(drawn)
	for _, i := range r.Perm(len(others))[:min(len(drawn), len(others))] {
		out = append(out, others[i])
	}
	slices.Sort(out)
	return out
}

// round runs one round: statistics, training, merge, test.
func (s *Server) round(ctx context.Context) (record.Record, error) {
	clock := startPhases(s.pool)
	g, task := &s.Global, method.ClientSpec{Width: s.Global.Width, Clients: s.Plan.Clients}
	g.Optimize = func(params, rows tensor.Map, loss func(*method.Scope) graph.Node, steps int, o optim.Config) (float64,
		error) {
		return s.worker.Fit(task, params, rows, loss, steps, o)
	}
	g.Compute = func(rows tensor.Map, build func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
		return s.worker.Compute(task, rows, build)
	}
	g.Interrupted = ctx.Err
	if s.settings.ServerNoise != nil {
		g.Noise = s.settings.ServerNoise.ForRound(g.Round, false)
	}
	if err := s.joinNew(); err != nil {
		return record.Record{}, fmt.Errorf("round %d: %w", g.Round+1, err)
	}
	rec := record.Record{Round: g.Round, Clients: s.sample(g.Round), LR: s.rate(g.Round)}
	g.LR = rec.LR
	instruction := message.Instruction{Round: g.Round, Clients: rec.Clients, Total: s.Plan.Clients, Shared: g.Shared,
		Broadcast: g.Broadcast, PerClient: g.PerClient}

	for _, q := range s.statistics {
		ask := instruction
		ask.Kind, ask.Statistic, ask.Clients = message.Compute, q.Name, s.Plan.TrainingClients()
		down, kept := maps.Clone(g.Broadcast), maps.Clone(g.State)
		each := map[int]tensor.Map{}
		for id, m := range g.PerClient {
			each[id] = maps.Clone(m)
		}
		clock.lap(&clock.Server)
		replies, err := s.send(ctx, ask, &rec)
		clock.lap(&clock.Statistics)
		if err == nil && len(replies) > 0 {
			_, err = s.dropInvalid(ctx, g, replies, q.Aggregate)
		}
		if err != nil {
			return rec, fmt.Errorf("round %d, statistic %s: %w", g.Round+1, q.Name, err)
		}
		if s.settings.Client.Tracer != nil {
			at := fmt.Sprintf("r%d/statistic/%s/aggregate", g.Round, q.Name)
			traceChanged(s.settings.Client.Tracer, at, g, down, kept, each)
		}
		instruction.Broadcast, instruction.PerClient = g.Broadcast, g.PerClient
	}

	instruction.Kind, instruction.Codec = message.Train, s.experiment.Method.Codec()
	var replies []message.Reply
	if len(instruction.Clients) > 0 {
		clock.lap(&clock.Server)
		for again := 0; ; again++ {
			var err error
			if replies, err = s.send(ctx, instruction, &rec); err != nil {
				return rec, err
			}
			more := s.drawOthers(instruction.Clients, again)
			if len(replies) > 0 || more == nil {
				break
			}
			instruction.Clients = more
		}
		clock.lap(&clock.Training)
		replies = s.dropSkipped(replies, &rec)
		rec.Clients = message.ClientsOf(replies)
	}
	for _, r := range replies {
		if err := message.CheckUpload(g.Shared, r.Upload); err != nil {
			return rec, fmt.Errorf("round %d, client %d: %w", g.Round+1, r.Client, err)
		}
	}
	var sent tensor.Map // with which uploads are compared
	if s.settings.Client.Terms && s.settings.Wrap == nil && !s.private() {
		sent = g.Shared.Clone()
	}
	g.Notes = map[string]float64{}
	maps.Copy(g.Notes, rec.Notes)
	s.recordDraws()
	merged := replies
	if len(replies) == 1 && replies[0].Sum != nil {
		merged = s.mergeSum(g, replies[0], &rec)
	} else if len(replies) > 0 || len(instruction.Clients) == 0 || s.hides() { // else there is nothing to merge
		var err error
		merged, err = s.dropInvalid(ctx, g, replies, s.experiment.Method.Merge)
		if errors.As(err, new(method.TooFewError)) && s.settings.Remote != nil {
			rec.Warnings, err = append(rec.Warnings, fmt.Sprintf("round %d is skipped: %v", g.Round+1, err)), nil
		}
		if err != nil {
			return rec, fmt.Errorf("round %d, merge: %w", g.Round+1, err)
		}
	}
	if len(merged) < len(replies) {
		rec.Clients = message.ClientsOf(merged)
	}
	for _, r := range merged {
		rec.Loss += r.Stats.Loss / float64(len(merged))
		maps.Copy(g.Notes, r.Notes)
		rec.Warnings = append(rec.Warnings, r.Warnings...)
	}
	rec.Notes = g.Notes
	if s.settings.Client.Terms {
		rec.Terms, rec.Drift = record.MeanTerms(merged), record.DriftOf(sent, merged)
	}
	if err := checkFinite(g); err != nil {
		return rec, fmt.Errorf("round %d, merge: %w", g.Round+1, err)
	}
	if err := s.traceMerge(merged, rec); err != nil {
		return rec, fmt.Errorf("round %d, merge: %w", g.Round+1, err)
	}
	clock.lap(&clock.Server)
	if err := s.Cohort.Accept(g.Round, rec.Clients); err != nil {
		return rec, err
	}
	clock.lap(&clock.Disk)
	if (g.Round+1)%max(1, s.Plan.TestEvery) == 0 || g.Round+1 == s.Plan.Rounds {
		if err := s.testing(ctx, &rec); err != nil {
			return rec, err
		}
		clock.lap(&clock.Evaluation)
	}
	rec.AttackedBy(s.Plan.Attackers)
	if s.settings.Remote != nil {
		rec.LimitedClients = s.settings.Remote.LimitedClients()
	}
	// where epsilon assumes a sample of clients that nobody may know
	if s.settings.ServerNoise != nil && g.Sampling.Draws() && s.private() {
		rec.HideSample(g.Sampling.Poisson)
	}
	clock.end(&rec)
	g.Round++
	return rec, nil
}

// send runs one instruction and counts its bytes.
func (s *Server) send(ctx context.Context, o message.Instruction, rec *record.Record) ([]message.Reply, error) {
	replies, err := s.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	// clients on other machines may all have failed, and clients in simulated time may all be late
	if len(replies) == 0 && s.settings.Remote == nil && s.simulated == nil {
		return nil, fmt.Errorf("round %d: no client answered", o.Round+1)
	}
	s.updateInfos() // some may have joined to answer
	message.SortReplies(replies)
	for _, r := range replies {
		rec.BytesUp += r.Up
		rec.BytesDown += r.Down
		rec.ParametersUp += message.UploadTensors(r.Upload).Count()
		for _, id := range message.ClientsOf([]message.Reply{r}) {
			rec.ParametersDown += o.ForClient(id).Tensors().Count()
		}
	}
	if s.simulated != nil {
		report := s.simulated.Report()
		rec.Simulated = &report
		if o.Kind == message.Train {
			rec.BytesUp, rec.BytesDown = rec.BytesUp+report.Up, rec.BytesDown+report.Down
		}
	}
	return replies, nil
}

// updateInfos updates the list of clients on other machines. A client that left stays known.
func (s *Server) updateInfos() {
	if s.settings.Remote == nil {
		return
	}
	now := message.ClientInfos(s.participants())
	for id := range now {
		if now[id].Backbone == "" {
			now[id] = s.Global.Info(id)
		}
	}
	s.Global.Infos, s.Plan.Infos = now, now
}

// joinNew passes the method, between rounds, the clients that joined since the last call. The statistics of round 0 are
// then asked again, since new clients have not answered them.
func (s *Server) joinNew() error {
	s.updateInfos()
	var joined []int
	for id, p := range s.Global.Infos {
		if p.Backbone != "" && (id >= len(s.known) || p != s.known[id]) {
			joined = append(joined, id)
		}
	}
	s.known, s.statistics = s.Global.Infos, s.experiment.Method.Statistics(s.Global.Round)
	if len(joined) == 0 || s.settings.Remote == nil {
		return nil
	}
	for _, q := range s.experiment.Method.Statistics(0) {
		if !slices.ContainsFunc(s.statistics, func(other method.Statistic) bool { return other.Name == q.Name }) {
			s.statistics = append(s.statistics, q)
		}
	}
	return s.admit(joined)
}

// admit passes the method clients that joined. If it fails, clients over which it fails stay unknown to it until the
// next round.
func (s *Server) admit(joined []int) error {
	g, before, infos := &s.Global, cloneGlobal(&s.Global), s.Global.Infos
	join := func(clients ...int) error {
		return recovered(func(g *method.Global, _ []method.Upload) error {
			return s.experiment.Method.Join(g, clients)
		}, g, nil)
	}
	if join(joined...) == nil {
		return nil
	}
	known := slices.Clone(infos)
	for _, id := range joined {
		known[id] = method.ClientInfo{}
	}
	*g = *before
	for _, id := range joined {
		before = cloneGlobal(g)
		known[id] = infos[id]
		g.Infos = known
		if err := join(id); err != nil {
			known[id] = method.ClientInfo{}
			*g = *before
			s.settings.Remote.Rejected(g.Round, id, err)
		}
	}
	g.Infos, s.known = known, known
	return nil
}

// overhead is the cost of clients' turns besides computation, in nanoseconds, summed over turns.
type overhead struct{ messages, disk atomic.Int64 }

func since(to *atomic.Int64, began time.Time) { to.Add(int64(time.Since(began))) }

// phaseClock divides the time of a round among phases.
type phaseClock struct {
	record.Phases
	began, last time.Time
	pool        *Pool
}

func startPhases(pool *Pool) *phaseClock {
	now := time.Now()
	return &phaseClock{began: now, last: now, pool: pool}
}

// lap adds the time since the last lap to a phase, except the time of messages and disks, which goes to phases of its
// own.
func (p *phaseClock) lap(to *float64) {
	now := time.Now()
	seconds := now.Sub(p.last).Seconds()
	p.last = now
	for _, o := range []struct {
		of *atomic.Int64
		to *float64
	}{{&p.pool.overhead.messages, &p.Messages}, {&p.pool.overhead.disk, &p.Disk}} {
		n := min(seconds, time.Duration(o.of.Swap(0)).Seconds()/float64(max(1, p.pool.Settings.Workers)))
		*o.to += n
		seconds -= n
	}
	*to += seconds
}

// end writes the seconds of the round. The server's phase gets the rest of the time.
func (p *phaseClock) end(rec *record.Record) {
	p.lap(&p.Server)
	rec.Seconds, rec.Phases = p.last.Sub(p.began).Seconds(), &p.Phases
}
