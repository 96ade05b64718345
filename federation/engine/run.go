package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// Settings decide how a run goes, not what it computes.
type Settings struct {
	client.Settings        // of the client side
	Dir             string // run folder; empty keeps everything in memory
	Resume          bool
	Workers         int
	Encode          bool // send every message through its encoded form
	// Provider is the provider of sessions, with the reason if it was not the first choice, for the summary; empty
	// leaves it out.
	Provider string
	OnTurn   func(o message.Instruction, client int) // after each client's turn, from any goroutine; may be nil
	OnRound  func(record.Record)
	// OnWarning gets lines about likely mistakes in the data; may be nil.
	OnWarning func(string)
	// Remote holds clients on other machines; nil if the experiment lists its clients.
	Remote message.Remote
	// Executor runs the clients' turns in place of this process; nil for none. The clients' states stay here.
	Executor client.RemoteExecutor
	// ServerNoise is the source of the server's noise of differential privacy, of the draw of a round's clients, and,
	// where clients are simulated, of their noise; nil for the run's seed, as in a simulation.
	ServerNoise *noise.Noise
	// Wrap puts a layer between the server and the clients, whose other side is Guard; nil for none.
	Wrap func(message.Cohort) message.Cohort
}

// Result is a finished run.
type Result struct {
	Summary record.Summary
	Records []record.Record
	// Prompts has the content of PromptsFile, of a run without a folder: shared/NAME, client/K/private/NAME,
	// client/K/own/NAME, and, where class scores read them, memory/K/image, memory/K/label and down/K/NAME.
	Prompts tensor.Map
	// Confusion has the content of ConfusionFile, of a run without a folder.
	Confusion *record.Confusion
}

// Run runs an experiment from the start, or from its last committed round.
func Run(ctx context.Context, e *spec.Experiment, set Settings) (*Result, error) {
	participants := participantsOf(e, set.Remote)
	first, err := check(e, set, participants)
	if err != nil {
		return nil, err
	}
	rate, err := e.Training.Schedule.New(e.Training.Optim.LR)
	if err != nil {
		return nil, err
	}
	store := state.NewStore("")
	if set.Dir != "" {
		dir := filepath.Join(set.Dir, record.CheckFolder)
		if _, err := os.Stat(filepath.Join(dir, state.CheckpointFile)); err == nil && !set.Resume {
			return nil, fmt.Errorf("%s holds a run already; add --resume to continue it, or choose another --out",
				set.Dir)
		}
		err := os.MkdirAll(dir, 0o700)
		// states of clients are private, also in a folder that an older release left readable
		if err == nil {
			err = os.Chmod(dir, 0o700)
		}
		if err != nil {
			return nil, fmt.Errorf("run folder: %w; choose another --out", err)
		}
		store = state.NewStore(dir)
	}
	if set.ServerNoise == nil && method.Any(e.Method, func(p method.Properties) bool { return p.SecretNoise }) {
		if set.ServerNoise, err = runNoise(set); err != nil {
			return nil, err
		}
	}
	if set.ServerNoise != nil && set.Remote == nil {
		set.Noise = set.ServerNoise.Client
	}
	worker := client.NewWorker(e, set.Settings)
	defer worker.Close()
	pool := &Pool{Settings: set, Worker: worker, Clients: e.Clients, Store: store}
	server := &Server{Settings: set, Method: e.Method, Cohort: pool, Plan: e.PlanFor(participants), Rate: rate,
		Evaluate: e.Evaluate, worker: worker, pool: pool}
	if set.Remote != nil {
		server.Cohort = set.Remote
		server.Infos = func() []method.ClientInfo { return message.ClientInfos(participantsOf(e, set.Remote)) }
	}
	if e.SimulatedTime != nil {
		server.simulated = simulatedtime.New(pool, e.SimulatedTime, server.Plan.TrainingClients(),
			int(server.Plan.Sampling().Size), func(client int) int {
				return e.Training.StepsOf(client, e.Clients[client].Train.Len())
			})
		server.Cohort = server.simulated
	}
	if set.Wrap != nil {
		server.Cohort = set.Wrap(server.Cohort)
	}
	for _, x := range e.EvaluationSets {
		server.EvaluationSets = append(server.EvaluationSets, x.Name)
	}
	if err := server.start(first.Task); err != nil {
		return nil, err
	}
	server.has = record.EvaluableOf(e.Method, first.Task)
	server.view = server.has.Headline(e.Plan.View, e.Method)
	j, err := resume(e, server, store)
	if err != nil {
		return nil, err
	}
	if err := checkBest(e, server, j); err != nil {
		return nil, err
	}
	if e.Evaluate.ZeroShot && len(e.Clients) > 0 {
		var tested []*spec.Client
		for _, id := range server.Plan.Participants() {
			tested = append(tested, e.Clients[id])
		}
		if j.ZeroShot, err = worker.ZeroShot(ctx, tested); err != nil {
			return nil, err
		}
	}
	for _, line := range warnings(e, j) {
		if set.OnWarning != nil {
			set.OnWarning(line)
		}
	}
	for _, r := range j.Records {
		if set.OnRound != nil {
			set.OnRound(r)
		}
	}
	if e.Synthetic != nil && server.Global.Round == 0 {
		if err := server.pretrain(ctx, e.Synthetic); err != nil {
			return nil, err
		}
	}
	for server.Global.Round < e.Plan.Rounds && e.Evaluate.Stop(j.Records, server.view) == "" {
		server.Past = j.Records
		rec, err := server.round(ctx)
		if err != nil {
			return nil, err
		}
		if err := commit(e, server, store, j, rec); err != nil {
			return nil, err
		}
		if set.OnRound != nil {
			set.OnRound(rec)
		}
	}
	return finish(e, server, store, j)
}

// warnings lists what is known to be wrong before the first round.
func warnings(e *spec.Experiment, j *record.Journal) []string {
	return slices.Concat(e.Warnings, record.ZeroShotWarnings(j.ZeroShot))
}

// resume restores the last committed round, if there is one and Settings.Resume is set.
func resume(e *spec.Experiment, server *Server, store *state.Store) (*record.Journal, error) {
	if server.Dir == "" {
		return &record.Journal{}, nil
	}
	dir := filepath.Join(server.Dir, record.CheckFolder)
	rounds := filepath.Join(server.Dir, record.RoundsFile)
	if !server.Resume {
		return record.OpenJournal(rounds, 0, record.Record{})
	}
	for _, where := range []string{server.Dir, dir} { // temporary files of a killed run
		entries, _ := os.ReadDir(where)
		for _, f := range entries {
			if strings.HasPrefix(f.Name(), ".") && strings.HasSuffix(f.Name(), ".tmp") {
				os.Remove(filepath.Join(where, f.Name()))
			}
		}
	}
	pos, ok, err := state.LoadCheckpoint(dir, &server.Global)
	if err != nil {
		return nil, err
	}
	if !ok {
		return record.OpenJournal(rounds, 0, record.Record{})
	}
	if pos.Fingerprint != e.Fingerprint() {
		return nil, fmt.Errorf("cannot resume: %s holds another experiment (method, options, classes, backbones, "+
			"partition or training differ); choose another --out", server.Dir)
	}
	if pos.Planned != 0 && pos.Planned != e.Plan.Rounds {
		return nil, fmt.Errorf("cannot resume: %s weights its rounds by their number and began with train.rounds: %d, "+
			"now it is %d: set it to %d, or choose another --out", e.MethodName, pos.Planned, e.Plan.Rounds,
			pos.Planned)
	}
	if pos.Planned != 0 {
		server.Global.Rounds.Total()
	}
	if err := store.Load(pos.Clients); err != nil {
		return nil, err
	}
	server.worker.RestoreOptimizer(pos.Optimizer)
	if server.simulated != nil {
		if err := server.simulated.Load(pos.Simulated, pos.Flights); err != nil {
			return nil, fmt.Errorf("cannot resume: %w", err)
		}
	}
	if server.Remote != nil {
		if err := server.Remote.Load(pos.Remote); err != nil {
			return nil, fmt.Errorf("cannot resume: %w", err)
		}
		server.known, server.Global.Infos = pos.Infos, pos.Infos
	}
	return record.OpenJournal(rounds, pos.Round, pos.Record)
}

// commit writes a round; a crash afterwards resumes after this round.
func commit(e *spec.Experiment, s *Server, store *state.Store, j *record.Journal,
	rec record.Record) error {
	if err := keepBest(e, s, store, j, rec); err != nil {
		return err
	}
	if err := keepConfusion(e, s, rec.Round); err != nil {
		return err
	}
	if s.Dir == "" {
		j.Records = append(j.Records, rec)
		return nil
	}
	pos := state.Checkpoint{Round: s.Global.Round, Fingerprint: e.Fingerprint(), Clients: store.Locations(),
		Record: rec}
	if s.Global.Rounds.Used() {
		pos.Planned = e.Plan.Rounds
	}
	pos.Optimizer = s.worker.OptimizerState()
	if s.simulated != nil {
		var err error
		if pos.Simulated, pos.Flights, err = s.simulated.Save(); err != nil {
			return err
		}
	}
	if s.Remote != nil {
		var err error
		if pos.Remote, err = s.Remote.Save(); err != nil {
			return err
		}
		pos.Infos = s.known
	}
	if err := state.SaveCheckpoint(filepath.Join(s.Dir, record.CheckFolder), &s.Global, pos); err != nil {
		return err
	}
	store.GC()
	err := j.Add(rec)
	sweepBest(e, s, j)
	if err != nil {
		return fmt.Errorf("round %d is done, but its line could not be written: %w; add --resume to continue",
			rec.Round+1, err)
	}
	return nil
}

func finish(e *spec.Experiment, s *Server, store *state.Store, j *record.Journal) (*Result, error) {
	r := &Result{Records: j.Records, Summary: record.Summarise(j.Records, s.view)}
	r.Summary.Choose(j.Records, s.view, e.Evaluate)
	r.Summary.ZeroShot, r.Summary.Warnings = j.ZeroShot, warnings(e, j)
	r.Summary.Provider, r.Summary.Reproduces = s.Provider, e.Reproduces
	r.Summary.Name, r.Summary.Method, r.Summary.Reads = e.Name, e.MethodName, s.has.Reads
	if a := r.Summary.Attack; a != nil {
		all := *a
		all.Clients = e.Plan.Attackers
		r.Summary.Attack = &all
	}
	r.Summary.MethodView = s.has.Headline(record.MethodView, e.Method).String()
	participants := participantsOf(e, s.Remote)
	parts := state.Sections(e, &s.Global, store, participants)
	if s.Dir == "" {
		r.Confusion = s.Confusion
		if r.Prompts = j.Best; e.Evaluate.BestVal {
			return r, nil
		}
		var err error
		r.Prompts, err = state.LoadSections(parts)
		return r, err
	}
	if e.Evaluate.BestVal {
		if err := takeBest(s.Dir, r.Summary.Selected); err != nil {
			return nil, err
		}
	} else {
		meta, err := state.Metadata(e, participants)
		if err != nil {
			return nil, err
		}
		if err := state.WriteSections(filepath.Join(s.Dir, record.PromptsFile), parts, meta); err != nil {
			return nil, err
		}
	}
	return r, atomicfile.Write(filepath.Join(s.Dir, record.SummaryFile), atomicfile.JSON(r.Summary, "  "))
}
