package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/simulatedtime"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// Settings decide how a run goes, not what it computes.
type Settings struct {
	Client  client.Settings // of the client side
	Dir     string          // run folder; empty keeps everything in memory
	Resume  bool
	Workers int
	Encode  bool // send every message through its encoded form
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
	s := &Server{settings: set, experiment: e}
	participants := s.participants()
	err := check(e, set, participants)
	if err != nil {
		return nil, err
	}
	if set.Dir != "" {
		s.fingerprint = e.Fingerprint()
	}
	if s.rate, err = e.Training.Schedule.New(e.Training.Optim.LR); err != nil {
		return nil, err
	}
	if s.store, err = openStore(set); err != nil {
		return nil, err
	}
	if set.ServerNoise == nil && method.Any(e.Method, func(p method.Properties) bool { return p.SecretNoise }) {
		if s.settings.ServerNoise, err = runNoise(set); err != nil {
			return nil, err
		}
	}
	if s.settings.ServerNoise != nil && s.settings.Remote == nil {
		s.settings.Client.Noise = s.settings.ServerNoise.Client
	}
	s.worker = client.NewWorker(e, s.settings.Client)
	defer s.worker.Close()
	s.pool = &Pool{Settings: s.settings, Worker: s.worker, Clients: e.Clients, Store: s.store}
	s.Cohort, s.Plan = s.pool, e.PlanFor(participants)
	if s.settings.Remote != nil {
		s.Cohort = s.settings.Remote
	}
	if e.SimulatedTime != nil {
		s.simulated = simulatedtime.New(s.pool, e.SimulatedTime, s.Plan.TrainingClients(),
			int(s.Plan.Sampling().Size), func(client int) int {
				return e.Training.StepsOf(client, e.Clients[client].Train.Len())
			})
		s.Cohort = s.simulated
	}
	if s.settings.Wrap != nil {
		s.Cohort = s.settings.Wrap(s.Cohort)
	}
	if err := s.startWithAny(participants); err != nil {
		return nil, err
	}
	s.view = s.has.Headline(e.Plan.View, e.Method)
	if s.journal, err = s.resume(); err != nil {
		return nil, err
	}
	if err := s.checkBest(); err != nil {
		return nil, err
	}
	if e.Evaluate.ZeroShot && len(e.Clients) > 0 {
		var tested []*spec.Client
		for _, id := range s.Plan.Participants() {
			tested = append(tested, e.Clients[id])
		}
		if s.journal.ZeroShot, err = s.worker.ZeroShot(ctx, tested); err != nil {
			return nil, err
		}
	}
	for _, line := range s.warnings() {
		if s.settings.OnWarning != nil {
			s.settings.OnWarning(line)
		}
	}
	for _, r := range s.journal.Records {
		s.report(r)
	}
	if e.Synthetic != nil && s.Global.Round == 0 {
		if err := s.pretrain(ctx, e.Synthetic); err != nil {
			return nil, err
		}
	}
	for s.Global.Round < e.Plan.Rounds && e.Evaluate.Stop(s.journal.Records, s.view) == "" {
		rec, err := s.round(ctx)
		if err == nil {
			err = s.commit(rec)
		}
		if err != nil {
			return nil, err
		}
		s.report(rec)
	}
	return s.finish()
}

func (s *Server) report(r record.Record) {
	if s.settings.OnRound != nil {
		s.settings.OnRound(r)
	}
}

// openStore opens the states of clients in the run folder, which must hold no run unless it is resumed.
func openStore(set Settings) (*state.Store, error) {
	if set.Dir == "" {
		return state.NewStore(""), nil
	}
	dir := filepath.Join(set.Dir, record.CheckFolder)
	if _, err := os.Stat(filepath.Join(dir, state.CheckpointFile)); err == nil && !set.Resume {
		return nil, fmt.Errorf("%s holds a run already; add --resume to continue it, or choose another --out", set.Dir)
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil { // states of clients are private, also in a folder that somebody made readable
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("run folder: %w; choose another --out", err)
	}
	return state.NewStore(dir), nil
}

// warnings lists what is known to be wrong before the first round.
func (s *Server) warnings() []string {
	return slices.Concat(s.experiment.Warnings, record.ZeroShotWarnings(s.journal.ZeroShot))
}

// resume restores the last committed round, if there is one and Settings.Resume is set.
func (s *Server) resume() (*record.Journal, error) {
	if s.settings.Dir == "" {
		return &record.Journal{}, nil
	}
	dir := filepath.Join(s.settings.Dir, record.CheckFolder)
	rounds := filepath.Join(s.settings.Dir, record.RoundsFile)
	if !s.settings.Resume {
		return record.OpenJournal(rounds, 0, record.Record{})
	}
	for _, where := range []string{s.settings.Dir, dir} { // temporary files of a killed run
		entries, _ := os.ReadDir(where)
		for _, f := range entries {
			if strings.HasPrefix(f.Name(), ".") && strings.HasSuffix(f.Name(), ".tmp") {
				os.Remove(filepath.Join(where, f.Name()))
			}
		}
	}
	pos, ok, err := state.LoadCheckpoint(dir, &s.Global)
	if err != nil {
		return nil, err
	}
	if !ok {
		return record.OpenJournal(rounds, 0, record.Record{})
	}
	if pos.Fingerprint != s.fingerprint {
		return nil, fmt.Errorf("cannot resume: %s holds another experiment (method, options, classes, backbones, "+
			"partition or training differ); choose another --out", s.settings.Dir)
	}
	if pos.Planned != 0 && pos.Planned != s.Plan.Rounds {
		return nil, fmt.Errorf("cannot resume: %s weights its rounds by their number and began with train.rounds: %d, "+
			"now it is %d: set it to %d, or choose another --out", s.experiment.MethodName, pos.Planned, s.Plan.Rounds,
			pos.Planned)
	}
	if pos.Planned != 0 {
		s.Global.Rounds.Total()
	}
	if err := s.store.Load(pos.Clients); err != nil {
		return nil, err
	}
	s.worker.RestoreOptimizer(pos.Optimizer)
	if s.simulated != nil {
		if err := s.simulated.Load(pos.Simulated, pos.Flights); err != nil {
			return nil, fmt.Errorf("cannot resume: %w", err)
		}
	}
	if s.settings.Remote != nil {
		if err := s.settings.Remote.Load(pos.Remote); err != nil {
			return nil, fmt.Errorf("cannot resume: %w", err)
		}
		s.known, s.Global.Infos = pos.Infos, pos.Infos
	}
	return record.OpenJournal(rounds, pos.Round, pos.Record)
}

// commit writes a round; a crash afterwards resumes after this round.
func (s *Server) commit(rec record.Record) (err error) {
	if err := s.keepBest(rec); err != nil {
		return err
	}
	if err := s.keepConfusion(rec.Round); err != nil {
		return err
	}
	if s.settings.Dir == "" {
		s.journal.Records = append(s.journal.Records, rec)
		return nil
	}
	pos := state.Checkpoint{Round: s.Global.Round, Fingerprint: s.fingerprint, Clients: s.store.Locations(),
		Record: rec, Optimizer: s.worker.OptimizerState()}
	if s.Global.Rounds.Used() {
		pos.Planned = s.Plan.Rounds
	}
	if s.simulated != nil {
		if pos.Simulated, pos.Flights, err = s.simulated.Save(); err != nil {
			return err
		}
	}
	if s.settings.Remote != nil {
		if pos.Remote, err = s.settings.Remote.Save(); err != nil {
			return err
		}
		pos.Infos = s.known
	}
	if err := state.SaveCheckpoint(filepath.Join(s.settings.Dir, record.CheckFolder), &s.Global, pos); err != nil {
		return err
	}
	s.store.GC()
	err = s.journal.Add(rec)
	s.sweepBest()
	if err != nil {
		return fmt.Errorf("round %d is done, but its line could not be written: %w; add --resume to continue",
			rec.Round+1, err)
	}
	return nil
}

func (s *Server) finish() (*Result, error) {
	r := &Result{Records: s.journal.Records, Summary: record.Summarise(s.journal.Records, s.view)}
	sum := &r.Summary
	sum.Choose(r.Records, s.view, s.experiment.Evaluate)
	sum.ZeroShot, sum.Warnings = s.journal.ZeroShot, s.warnings()
	sum.Provider, sum.Reproduces = s.settings.Provider, s.experiment.Reproduces
	sum.Name, sum.Method, sum.Reads = s.experiment.Name, s.experiment.MethodName, s.has.Reads
	if a := sum.Attack; a != nil {
		all := *a
		all.Clients = s.Plan.Attackers
		sum.Attack = &all
	}
	sum.MethodView = s.has.Headline(record.MethodView, s.experiment.Method).String()
	if s.settings.Dir == "" {
		r.Confusion = s.confusion
		if r.Prompts = s.journal.Best; s.experiment.Evaluate.BestVal {
			return r, nil
		}
	}
	var err error
	if s.experiment.Evaluate.BestVal {
		err = takeBest(s.settings.Dir, sum.Selected)
	} else {
		r.Prompts, err = s.writePrompts(filepath.Join(s.settings.Dir, record.PromptsFile))
	}
	if err != nil || s.settings.Dir == "" {
		return r, err
	}
	return r, atomicfile.Write(filepath.Join(s.settings.Dir, record.SummaryFile), atomicfile.JSON(r.Summary, "  "))
}

// pretrain trains the shared parameters on synthetic images before round 0.
func (s *Server) pretrain(ctx context.Context, synthetic *spec.Synthetic) error {
	g := &s.Global
	shared, err := s.worker.Pretrain(ctx, synthetic, message.Instruction{Kind: message.Train, Clients: []int{0},
		Total: s.Plan.Clients, Shared: g.Shared, Broadcast: g.Broadcast, PerClient: g.PerClient})
	if err != nil {
		return fmt.Errorf("synthetic images: %w", err)
	}
	g.Shared = shared
	if s.settings.Client.Tracer != nil {
		trace.TraceAll(s.settings.Client.Tracer, "init", g.Shared)
	}
	return nil
}

// InitialParams returns the parameters that a client has before round 0, by the names of PromptsFile.
func InitialParams(e *spec.Experiment, c *spec.Client) (tensor.Map, error) {
	s := &Server{experiment: e}
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

// noiseFile holds the key of the noise of a run in one process whose noise is a secret.
const noiseFile = "noise.json"

// runNoise opens the secret noise of a run in one process. A resumed run has the key that it began with. The key of a
// run without a folder is not kept.
func runNoise(set Settings) (*noise.Noise, error) {
	if set.Dir == "" {
		return noise.Open("", "")
	}
	dir := filepath.Join(set.Dir, record.CheckFolder)
	path := filepath.Join(dir, noiseFile)
	_, err := os.Stat(path)
	switch none := errors.Is(err, fs.ErrNotExist); {
	case err != nil && !none:
		return nil, err
	case !set.Resume && !none:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	case set.Resume && none:
		if _, err := os.Stat(filepath.Join(dir, state.CheckpointFile)); err == nil {
			return nil, fmt.Errorf("cannot resume: %s is missing, which has the key of the noise and of the draw of "+
				"clients so far; choose another --out", path)
		}
	}
	return noise.Open(path, "")
}
