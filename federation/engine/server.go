package engine

import (
	"cmp"
	"reflect"
	"slices"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// server runs the rounds. It holds no client's object, data or private state.
type server struct {
	settings   Settings
	experiment *spec.Experiment
	plan       spec.Plan // of the experiment, for the clients that take part
	random     randomness
	rate       optim.Rate // learning rate by round, for reports
	store      *state.Store
	worker     *client.Worker // of this process
	cost       *overhead      // of the turns of clients in this process
	cohort     message.Cohort
	global     method.Global

	fingerprint string // of the experiment, in a run with a folder

	has        record.Evaluable
	view       method.View         // of the headline
	journal    *record.Journal     // of the rounds before
	confusion  *record.Confusion   // of the last round that may be the result; nil for none
	best       string              // state.FileSum of the file with the prompts of the best round
	failures   int                 // calls in a row in which the method failed over all of several replies
	known      []method.ClientInfo // the clients that the method knows of
	unfit      []int               // clients that are unknown to it in this round, since Join fails over them
	statistics []method.Statistic  // of the round
}

// newServer returns the server of a run whose method has started. The caller closes its worker.
func newServer(experiment *spec.Experiment, set Settings) (*server, error) {
	members := participants(experiment, set)
	if err := check(experiment, set, members); err != nil {
		return nil, err
	}

	server := &server{settings: set, experiment: experiment, plan: experiment.PlanFor(members), cost: &overhead{}}
	if set.Dir != "" {
		server.fingerprint = experiment.Fingerprint()
	}

	var err error
	if server.rate, err = experiment.Training.Schedule.New(experiment.Training.Optim.LR); err != nil {
		return nil, err
	}

	if server.store, err = openStore(set); err != nil {
		return nil, err
	}

	if server.random, err = set.openRandomness(experiment); err != nil {
		return nil, err
	}

	server.settings.Client.Noise = server.random.client
	server.worker = client.NewWorker(experiment, server.settings.Client)
	server.cohort = server.assemble(members)
	if err := server.startWithAny(members); err != nil {
		server.worker.Close()
		return nil, err
	}

	server.view = server.has.Headline(experiment.Plan.View, experiment.Method)
	return server, nil
}

// initial returns the server's state before its method starts.
func initial(experiment *spec.Experiment, plan spec.Plan, task method.ClientSpec, claimed bool) method.Global {
	g := method.Global{Rounds: method.Rounds(plan.Rounds), Clients: plan.Clients, Classes: task.Classes,
		Seed: plan.Seed, Width: task.Width, Task: task, Infos: plan.Infos, Claimed: claimed, Sampling: plan.Sampling(),
		Shared: tensor.Map{}, Broadcast: tensor.Map{}, PerClient: map[int]tensor.Map{}, State: tensor.Map{}}
	for _, p := range experiment.Method.Params(task) {
		if p.Owner == method.Shared {
			g.Shared[p.Name] = p.Initial(plan.Seed, -1)
		}
	}

	return g
}

// start draws the shared parameters for a task, starts the method and sets what can be tested.
func (s *server) start(task method.ClientSpec) error {
	draws := s.global.Draws
	s.global = initial(s.experiment, s.plan, task, s.cohort.Traits().Claimed)
	s.global.Draws, s.known = draws, s.plan.Infos
	if err := s.experiment.Method.Start(&s.global); err != nil {
		return err
	}

	s.has = record.EvaluableOf(s.experiment.Method, task)
	return nil
}

// startWithAny starts the method with the task of the first client that joined. Of clients whose claims are not trusted
// it takes the task that has most sizes in common with all, since no single one decides what the others get, also where
// each has another backbone, and the next one if the method fails over it.
func (s *server) startWithAny(members []message.Participant) error {
	alike := map[method.ClientSpec][]int{}
	kind := func(task method.ClientSpec) method.ClientSpec {
		task.Client = 0
		return task
	}

	var tasks []method.ClientSpec
	for id, p := range members {
		if !p.Joined {
			continue
		}
		if alike[kind(p.Task)] == nil {
			tasks = append(tasks, p.Task)
		}
		alike[kind(p.Task)] = append(alike[kind(p.Task)], id)
	}

	if !s.cohort.Traits().Claimed {
		return s.start(tasks[0])
	}

	common := map[method.ClientSpec]int{} // sizes of a task that clients have, of each client
	for _, task := range tasks {
		own := reflect.ValueOf(task)
		for _, p := range members {
			other := reflect.ValueOf(p.Task)
			for i := range own.NumField() {
				if p.Joined && own.Field(i).Equal(other.Field(i)) {
					common[task]++
				}
			}
		}
	}

	slices.SortStableFunc(tasks, func(a, b method.ClientSpec) int { return common[b] - common[a] })
	if i := slices.IndexFunc(tasks, s.scored); i > 0 { // sizes without scores say nothing about what can be tested
		first := tasks[i]
		tasks = slices.Insert(slices.Delete(tasks, i, i+1), 0, first)
	}

	var first error
	for _, task := range tasks {
		err := recovered(&s.global, func() error { return s.start(task) })
		if err == nil {
			return nil
		}
		for _, id := range alike[kind(task)] {
			s.cohort.Rejected(0, id, err)
		}
		first = cmp.Or(first, err)
	}

	return first
}

// scored reports whether the method has class scores for a task.
func (s *server) scored(task method.ClientSpec) bool {
	return recovered(&s.global, func() error {
		scope := method.ScopeOf(s.experiment.Method, task)
		s.experiment.Method.Logits(scope)
		return scope.Graph().Err()
	}) == nil
}

// private reports whether the method hides single clients, as differential privacy does.
func (s *server) private() bool {
	return method.Any(s.experiment.Method, func(p method.Properties) bool { return p.HidesClients })
}

// updateInfos updates the list of clients where they join and leave. A client that left stays known, and one over which
// Join failed stays unknown.
func (s *server) updateInfos() {
	if !s.cohort.Traits().Claimed {
		return
	}

	now := message.ClientInfos(s.cohort.Participants())
	for id := range now {
		if now[id].Backbone == "" || slices.Contains(s.unfit, id) {
			now[id] = s.global.Info(id)
		}
	}

	s.global.Infos, s.plan.Infos = now, now
}

// joinNew passes the method, between rounds, the clients that joined since the last call. The statistics of round 0 are
// then asked again, since new clients have not answered them.
func (s *server) joinNew() error {
	s.unfit = nil
	s.updateInfos()
	var joined []int
	for id, p := range s.global.Infos {
		if p.Backbone != "" && (id >= len(s.known) || p != s.known[id]) {
			joined = append(joined, id)
		}
	}

	s.known, s.statistics = s.global.Infos, s.experiment.Method.Statistics(s.global.Round)
	if len(joined) == 0 {
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
func (s *server) admit(joined []int) error {
	global, before, infos := &s.global, cloneGlobal(&s.global), s.global.Infos
	join := func(clients ...int) error {
		return recovered(global, func() error { return s.experiment.Method.Join(global, clients) })
	}

	if join(joined...) == nil {
		return nil
	}

	known := slices.Clone(infos)
	for _, id := range joined {
		known[id] = method.ClientInfo{}
	}

	*global = *before
	for _, id := range joined {
		before = cloneGlobal(global)
		known[id] = infos[id]
		global.Infos = known
		if err := join(id); err != nil {
			known[id] = method.ClientInfo{}
			*global, s.unfit = *before, append(s.unfit, id)
			s.cohort.Rejected(global.Round, id, err)
		}
	}

	global.Infos, s.known = known, known
	return nil
}
