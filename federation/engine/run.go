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

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/federation/privacy/noise"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/convert"
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
	// after each client's turn, from any goroutine; may be nil
	OnTurn  func(instruction message.Instruction, client int)
	OnRound func(record.Record)
	// OnWarning gets lines about likely mistakes in the data; may be nil.
	OnWarning func(string)
	// Remote holds clients on other machines; nil if the experiment lists its clients.
	Remote message.Cohort
	// Executor runs the clients' turns in place of this process; nil for none. The clients' states stay here.
	Executor client.RemoteExecutor
	// ServerNoise is the source of the server's noise of differential privacy, of the draw of a round's clients, and,
	// where clients are simulated, of their noise; nil for the run's seed, as in a simulation.
	ServerNoise *noise.Noise
	// Wrap puts a layer between the server and the clients, whose other side is Guard; nil for none.
	Wrap func(message.Cohort) message.Cohort
}

// Result is what a finished run returns.
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
func Run(ctx context.Context, experiment *spec.Experiment, set Settings) (*Result, error) {
	server, err := newServer(experiment, set.withDefaults())
	if err != nil {
		return nil, err
	}
	defer server.worker.Close()

	if err := server.begin(ctx); err != nil {
		return nil, err
	}

	for server.global.Round < experiment.Plan.Rounds && experiment.Evaluate.Stop(server.journal.Records,
		server.view) == "" {
		rec, err := server.round(ctx)
		if err == nil {
			err = server.commit(rec)
		}
		if err != nil {
			return nil, err
		}
		server.settings.OnRound(rec)
	}

	return server.finish()
}

// begin restores the last committed round, or prepares the first one, and reports what is there.
func (s *server) begin(ctx context.Context) (err error) {
	experiment := s.experiment
	if s.journal, err = s.resume(); err != nil {
		return err
	}

	if err := s.checkBest(); err != nil {
		return err
	}

	if experiment.Evaluate.ZeroShot && len(experiment.Clients) > 0 {
		tested := convert.Slice(s.plan.Participants(), func(id int) *spec.Client { return experiment.Clients[id] })
		if s.journal.ZeroShot, err = s.worker.ZeroShot(ctx, tested); err != nil {
			return err
		}
	}

	for _, line := range s.warnings() {
		s.settings.OnWarning(line)
	}

	for _, r := range s.journal.Records {
		s.settings.OnRound(r)
	}

	if experiment.Synthetic != nil && s.global.Round == 0 {
		return s.pretrain(ctx, experiment.Synthetic)
	}

	return nil
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
func (s *server) warnings() []string {
	return slices.Concat(s.experiment.Warnings, record.ZeroShotWarnings(s.journal.ZeroShot))
}

// resume restores the last committed round, if there is one and Settings.Resume is set.
func (s *server) resume() (*record.Journal, error) {
	if s.settings.Dir == "" {
		return &record.Journal{}, nil
	}

	dir := filepath.Join(s.settings.Dir, record.CheckFolder)
	rounds := filepath.Join(s.settings.Dir, record.RoundsFile)
	if !s.settings.Resume {
		return record.OpenJournal(rounds, 0, record.Record{}, nil)
	}

	// Those of a killed run. A report may be writing beside it.
	atomicfile.Sweep(dir, 0, ".*.tmp")
	atomicfile.Sweep(s.settings.Dir, 0, ".rounds.*.tmp", ".summary.*.tmp", ".prompts.*.tmp", ".embeddings.*.tmp",
		".confusion.*.tmp")
	atomicfile.Sweep(s.settings.Dir, atomicfile.Abandoned, ".*.tmp")

	pos, ok, err := state.LoadCheckpoint(dir, &s.global)
	if err != nil {
		return nil, err
	}

	if !ok {
		if done, _ := record.Records(s.settings.Dir); len(done) > 0 {
			return nil, fmt.Errorf("cannot resume: %s has %d rounds, but %s is missing; restore it, or start again "+
				"with --force", rounds, len(done), filepath.Join(dir, state.CheckpointFile))
		}
		return record.OpenJournal(rounds, 0, record.Record{}, nil)
	}

	if pos.Fingerprint != s.fingerprint {
		return nil, fmt.Errorf("cannot resume: %s holds another experiment (method, options, classes, backbones, "+
			"partition or training differ); choose another --out", s.settings.Dir)
	}

	if pos.Planned != 0 && pos.Planned != s.plan.Rounds {
		return nil, fmt.Errorf("cannot resume: %s weights its rounds by their number and began with train.rounds: %d, "+
			"now it is %d: set it to %d, or choose another --out", s.experiment.MethodName, pos.Planned, s.plan.Rounds,
			pos.Planned)
	}

	if pos.Planned != 0 {
		s.global.Rounds.Total()
	}

	if err := s.cohort.Load(pos.Cohort); err != nil {
		return nil, fmt.Errorf("cannot resume: %w", err)
	}

	if s.cohort.Traits().Claimed {
		s.known, s.global.Infos = pos.Infos, pos.Infos
	}

	s.best = pos.Best
	return record.OpenJournal(rounds, pos.Round, pos.Record, func(records []record.Record) {
		s.experiment.Evaluate.Settle(records, s.view, s.plan.Rounds)
	})
}

// commit writes a round; a crash afterwards resumes after this round.
func (s *server) commit(rec record.Record) (err error) {
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

	pos := state.Checkpoint{Round: s.global.Round, Fingerprint: s.fingerprint, Record: rec,
		Best: s.best}
	if s.global.Rounds.Used() {
		pos.Planned = s.plan.Rounds
	}

	if pos.Cohort, err = s.cohort.Save(); err != nil {
		return err
	}

	if s.cohort.Traits().Claimed {
		pos.Infos = s.known
	}

	for _, name := range []string{record.SummaryFile, record.PromptsFile, record.EmbeddingsFile} { // of fewer rounds
		if err := os.Remove(filepath.Join(s.settings.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove results of fewer rounds: %w; make the folder writable and --resume", err)
		}
	}

	if err := state.SaveCheckpoint(filepath.Join(s.settings.Dir, record.CheckFolder), &s.global, pos); err != nil {
		return err
	}

	s.store.GC()
	if err = s.journal.Add(rec); err != nil {
		return fmt.Errorf("round %d is done, but its line could not be written: %w; add --resume to continue",
			rec.Round+1, err)
	}

	s.sweepBest()
	return nil
}

func (s *server) finish() (*Result, error) {
	result := &Result{Records: s.journal.Records, Summary: record.Summarise(s.journal.Records, s.view)}
	sum := &result.Summary
	sum.Choose(result.Records, s.view, s.experiment.Evaluate)
	sum.ZeroShot, sum.Warnings = s.journal.ZeroShot, s.warnings()
	sum.Provider, sum.Reproduces = s.settings.Provider, s.experiment.Reproduces
	sum.Name, sum.Method, sum.Reads = s.experiment.Name, s.experiment.MethodName, s.has.Reads
	if a := sum.Attack; a != nil {
		all := *a
		all.Clients = s.plan.Attackers
		sum.Attack = &all
	}

	sum.MethodView = s.has.Headline(record.MethodView, s.experiment.Method).String()
	if s.settings.Dir == "" {
		result.Confusion = s.confusion
		if result.Prompts = s.journal.Best; s.experiment.Evaluate.BestVal {
			return result, nil
		}
	}

	var err error
	prompts := filepath.Join(s.settings.Dir, record.PromptsFile)
	if s.experiment.Evaluate.BestVal {
		_, err = atomicfile.LinkOrCopy(context.Background(), bestPath(s.settings.Dir, sum.Selected), prompts)
	} else {
		result.Prompts, err = s.writePrompts(prompts)
	}

	if err != nil || s.settings.Dir == "" {
		return result, err
	}

	return result, atomicfile.Write(filepath.Join(s.settings.Dir, record.SummaryFile),
		atomicfile.JSON(result.Summary, "  "))
}

// pretrain trains the shared parameters on synthetic images before round 0.
func (s *server) pretrain(ctx context.Context, synthetic *spec.Synthetic) error {
	global := &s.global
	shared, err := s.worker.Pretrain(ctx, synthetic, s.instructionTo(message.Train, []int{0}))
	if err != nil {
		return fmt.Errorf("synthetic images: %w", err)
	}
	global.Shared = shared
	return nil
}

// InitialParams returns the parameters that a client has before round 0, by the names of PromptsFile.
func InitialParams(experiment *spec.Experiment, site *spec.Client) (tensor.Map, error) {
	members := participants(experiment, Settings{})
	g := initial(experiment, experiment.PlanFor(members), experiment.Task(experiment.Clients[0]), false)
	if err := experiment.Method.Start(&g); err != nil {
		return nil, err
	}

	out := tensor.Map{}.Put("shared", g.Shared).Put(state.DownFolder, state.ClientBroadcasts(experiment, &g, members))
	for _, p := range experiment.Method.Params(experiment.Task(site)) {
		if p.Owner == method.Private {
			out["client/"+strconv.Itoa(site.ID)+"/private/"+p.Name] = p.Initial(experiment.Plan.Seed, site.ID)
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
		return noise.Open("", "", false)
	}

	path := filepath.Join(set.Dir, record.CheckFolder, noiseFile)
	if !set.Resume {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}

	return noise.Open(path, "", set.Resume && state.HasCheckpoint(set.Dir))
}
