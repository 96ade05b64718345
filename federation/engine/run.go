package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Settings decide how a run goes, not what it computes.
type Settings struct {
	Dir     string // run folder; empty keeps everything in memory
	Resume  bool
	Workers int
	Session ort.Options
	Encode  bool // send every message through its encoded form
	Terms   bool // measure each term of the loss, for the records; it changes nothing that is trained
	// Provider is what sessions run on, and why if that was not the first choice, for the summary; empty leaves it out.
	Provider string
	Tracer   Tracer // nil for none
	OnTurn   func(o Order, client int)
	OnRound  func(Record)
	// OnWarning hears lines that say what is probably wrong with the data; may be nil.
	OnWarning func(string)
	// Lost loses a client's answers of a round, as a client does that leaves: the round goes on with the others, and
	// the client remembers what it did before. Nil loses none.
	Lost func(round, client int) bool
	// Remote is the clients of an experiment that has none itself; nil for those of the experiment.
	Remote Remote
	// Elsewhere does the clients' turns in place of this process; nil for none. What clients remember stays here.
	Elsewhere Answerer
	// OnUpload sees every upload as it is encoded, with Encode, from any goroutine; may be nil.
	OnUpload func(round, client int, message []byte)
	// Noise is where the noise of differential privacy comes from, and with it the draw of a round's clients; nil for
	// the run's seed, which is a simulation.
	Noise *Noise
	// Guard is the client's side of what Around is the server's side of; both nil for none.
	Guard  Guard
	Around func(Cohort) Cohort // puts a layer between the server and the clients
}

// Worker are the settings of the client side.
func (s Settings) Worker() WorkerSettings {
	return WorkerSettings{Session: s.Session, Tracer: s.Tracer, Guard: s.Guard, Noise: s.Noise, Terms: s.Terms}
}

// Result is a finished run.
type Result struct {
	Summary Summary
	Records []Record
	// Prompts are what PromptsFile holds, of a run without a folder: shared/NAME, client/K/private/NAME,
	// client/K/own/NAME, and where class scores read them memory/K/image, memory/K/label and down/K/NAME.
	Prompts tensor.Map
	// Confusion is what ConfusionFile holds, of a run without a folder.
	Confusion *Confusion
}

// Run runs an experiment from the start, or from its last committed round.
func Run(ctx context.Context, e *Experiment, set Settings) (*Result, error) {
	members := e.members(set.Remote)
	first, err := e.check(set, members)
	if err != nil {
		return nil, err
	}
	rate, err := e.Training.Schedule.New(e.Training.Optim.LR)
	if err != nil {
		return nil, err
	}
	worker := NewWorker(e, set.Worker())
	defer worker.Close()
	store := NewStore("")
	if set.Dir != "" {
		dir := filepath.Join(set.Dir, CheckFolder)
		err := os.MkdirAll(dir, 0o700)
		// what clients remember is nobody else's business, also where an older release left the folder open
		if err == nil {
			err = os.Chmod(dir, 0o700)
		}
		if err != nil {
			return nil, fmt.Errorf("run folder: %w; choose another --out", err)
		}
		store = NewStore(dir)
	}
	pool := &Pool{Worker: worker, Clients: e.Clients, Workers: set.Workers, Store: store, Elsewhere: set.Elsewhere,
		Encode: set.Encode, Done: set.OnTurn}
	if set.Lost != nil {
		pool.Lost = func(o Order, client int) bool { return set.Lost(o.Round, client) }
	}
	if set.OnUpload != nil {
		pool.Sent = func(o Order, client int, message []byte) { set.OnUpload(o.Round, client, message) }
	}
	server := &Server{Method: e.Method, Cohort: pool, Plan: e.plan(members), Rate: rate, Tracer: set.Tracer,
		Terms: set.Terms, Noise: set.Noise, Evaluate: e.Evaluate, worker: worker}
	if set.Remote != nil {
		server.Cohort = set.Remote
		server.Known = func() []method.ClientInfo { return peers(e.members(set.Remote)) }
		server.Limited = set.Remote.Limited
	}
	if set.Around != nil {
		server.Cohort = set.Around(server.Cohort)
	}
	for _, x := range e.Exams {
		server.Exams = append(server.Exams, x.Name)
	}
	if err := server.start(first.Task); err != nil {
		return nil, err
	}
	server.has = EvaluableOf(e.Method, first.Task)
	server.view = server.has.headline(e.Plan.View, e.Method)
	j, err := e.resume(set, server, store)
	if err != nil {
		return nil, err
	}
	if err := e.checkBest(set, server, j); err != nil {
		return nil, err
	}
	if e.Evaluate.ZeroShot && len(e.Clients) > 0 {
		if j.zeroShot, err = worker.ZeroShot(ctx, e.Clients); err != nil {
			return nil, err
		}
		for _, line := range ZeroShotWarnings(j.zeroShot) {
			if set.OnWarning != nil {
				set.OnWarning(line)
			}
		}
	}
	for _, r := range j.Records {
		if set.OnRound != nil {
			set.OnRound(r)
		}
	}
	if e.Synthetic != nil && server.Global.Round == 0 {
		if err := server.warm(ctx, e.Synthetic); err != nil {
			return nil, err
		}
	}
	for server.Global.Round < e.Plan.Rounds && e.Evaluate.stop(j.Records, server.view) == "" {
		server.Past = j.Records
		rec, err := server.round(ctx)
		if err != nil {
			return nil, err
		}
		if err := e.commit(set, server, store, j, rec); err != nil {
			return nil, err
		}
		if set.OnRound != nil {
			set.OnRound(rec)
		}
	}
	return e.finish(set, server, store, j)
}

// resume goes back to the last committed round, if there is one and it is wanted.
func (e *Experiment) resume(set Settings, server *Server, store *Store) (*journal, error) {
	if set.Dir == "" {
		return &journal{}, nil
	}
	dir := filepath.Join(set.Dir, CheckFolder)
	rounds := filepath.Join(set.Dir, RoundsFile)
	if !set.Resume {
		if _, err := os.Stat(filepath.Join(dir, checkpointFile)); err == nil {
			return nil, fmt.Errorf("%s holds a run already; add --resume to go on with it, or choose another --out",
				set.Dir)
		}
		return openJournal(rounds, 0, Record{})
	}
	for _, where := range []string{set.Dir, dir} { // what a killed run was about to write
		entries, _ := os.ReadDir(where)
		for _, f := range entries {
			if strings.HasPrefix(f.Name(), ".") && strings.HasSuffix(f.Name(), ".tmp") {
				os.Remove(filepath.Join(where, f.Name()))
			}
		}
	}
	pos, ok, err := loadCheckpoint(dir, &server.Global)
	if err != nil {
		return nil, err
	}
	if !ok {
		return openJournal(rounds, 0, Record{})
	}
	if pos.Fingerprint != e.Fingerprint() {
		return nil, fmt.Errorf("cannot resume: %s holds another experiment (method, options, classes, backbones, "+
			"partition or training differ); use another --out", set.Dir)
	}
	if err := store.load(pos.Clients); err != nil {
		return nil, err
	}
	server.worker.restoreOptimizer(pos.optimizer)
	if set.Remote != nil {
		if err := set.Remote.Load(pos.Remote); err != nil {
			return nil, fmt.Errorf("cannot resume: %w", err)
		}
		server.joined, server.Global.Infos = pos.Peers, pos.Peers
	}
	return openJournal(rounds, pos.Round, pos.Record)
}

// commit makes a round count: from here on a crash resumes after it.
func (e *Experiment) commit(set Settings, s *Server, store *Store, j *journal, rec Record) error {
	if err := e.keepBest(set, s, store, j, rec); err != nil {
		return err
	}
	if err := e.keepConfusion(set, s, rec.Round); err != nil {
		return err
	}
	if set.Dir == "" {
		j.Records = append(j.Records, rec)
		return nil
	}
	pos := position{Round: s.Global.Round, Fingerprint: e.Fingerprint(), Clients: store.places(), Record: rec}
	pos.optimizer = s.worker.optimizerState()
	if set.Remote != nil {
		var err error
		if pos.Remote, err = set.Remote.Save(); err != nil {
			return err
		}
		pos.Peers = s.joined
	}
	if err := saveCheckpoint(filepath.Join(set.Dir, CheckFolder), &s.Global, pos); err != nil {
		return err
	}
	store.sweep()
	err := j.add(rec)
	e.sweepBest(set, s, j)
	if err != nil {
		return fmt.Errorf("round %d is done, but its line could not be written: %w; add --resume to go on", rec.Round,
			err)
	}
	return nil
}

func (e *Experiment) finish(set Settings, s *Server, store *Store, j *journal) (*Result, error) {
	r := &Result{Records: j.Records, Summary: Summarise(j.Records, s.view)}
	r.Summary.choose(j.Records, s.view, e.Evaluate)
	r.Summary.ZeroShot, r.Summary.Warnings = j.zeroShot, ZeroShotWarnings(j.zeroShot)
	r.Summary.Provider, r.Summary.Reproduces = set.Provider, e.Reproduces
	r.Summary.Name, r.Summary.Method, r.Summary.Reads = e.Name, e.MethodName, s.has.Reads
	r.Summary.MethodView = s.has.headline(MethodView, e.Method).String()
	members := e.members(set.Remote)
	parts := e.parts(&s.Global, store, members)
	if set.Dir == "" {
		r.Confusion = s.Confusion
		if r.Prompts = j.best; e.Evaluate.BestVal {
			return r, nil
		}
		var err error
		r.Prompts, err = loaded(parts)
		return r, err
	}
	if e.Evaluate.BestVal {
		if err := takeBest(set, r.Summary.Selected); err != nil {
			return nil, err
		}
	} else {
		meta, err := e.about(members)
		if err != nil {
			return nil, err
		}
		if err := writeParts(filepath.Join(set.Dir, PromptsFile), parts, meta); err != nil {
			return nil, err
		}
	}
	b, err := json.MarshalIndent(r.Summary, "", "  ")
	if err != nil {
		return nil, err
	}
	return r, atomicfile.Write(filepath.Join(set.Dir, SummaryFile), func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}
