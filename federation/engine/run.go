package engine

import (
	"context"
	"crypto/sha256"
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

// Experiment is everything that decides what a run computes.
type Experiment struct {
	Name       string
	MethodName string // for reports and the fingerprint: base method and wrappers
	Options    string // of the methods, for the fingerprint
	Secure     string // of secure aggregation, for the fingerprint; empty for none
	Privacy    string // what epsilons reckon with, for Terms; empty without differential privacy
	// Reproduces are the known defects of published code that the experiment makes again on purpose, for the
	// fingerprint and the summary.
	Reproduces []string
	Method     method.Method
	Classes    []string
	Template   string // of hand-written prompts, with {} for the class
	Precision  string // of features, for the fingerprint; empty and half are the same
	Clients    []*Client
	Training   Training
	Synthetic  *Synthetic // nil for none
	Exams      []Exam
	Plan       Plan // Clients and Peers are filled in
	Evaluate   Evaluate
}

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

// Files of a run folder.
const (
	RoundsFile  = "rounds.jsonl"
	SummaryFile = "summary.json"
	PromptsFile = "prompts.safetensors"
	CheckFolder = "checkpoint"
)

// Run runs an experiment from the start, or from its last committed round.
func Run(ctx context.Context, e *Experiment, set Settings) (*Result, error) {
	members := e.members(set)
	first, err := e.check(set, members)
	if err != nil {
		return nil, err
	}
	rate, err := e.Training.Schedule.New(e.Training.Optim.LR)
	if err != nil {
		return nil, err
	}
	worker := NewWorker(e, set)
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
		Terms: set.Terms, Noise: set.Noise, Evaluate: e.Evaluate, c: worker.c, shared: worker.shared}
	if set.Remote != nil {
		server.Cohort = set.Remote
		server.Known = func() []method.ClientInfo { return peers(e.members(set)) }
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
		if err := server.warm(ctx, worker, e.Synthetic); err != nil {
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

// plan is Plan with what it is to know of the clients.
func (e *Experiment) plan(members []Member) Plan {
	p := e.Plan
	p.Clients, p.Peers = len(members), peers(members)
	return p
}

// task is what the method is built for on a client.
func (e *Experiment) task(c *Client) method.Task {
	t := c.Backbone.Task()
	t.Client, t.Clients, t.Classes, t.Backbone = c.ID, len(e.Clients), len(e.Classes), c.Backbone.Name()
	return t
}

// Fingerprint tells experiments apart that would train something else.
func (e *Experiment) Fingerprint() string {
	h := sha256.New()
	fmt.Fprintln(h, e.MethodName, e.Options, e.Plan.Seed, e.Plan.Participation, e.Plan.Trainers, strings.Join(e.Classes,
		"|"), e.Template)
	fmt.Fprintf(h, "%+v\n", e.Training)
	if e.Plan.Poisson || e.Secure != "" {
		fmt.Fprintln(h, "poisson", e.Plan.Poisson, "secure", e.Secure)
	}
	if p := e.otherPrecision(); p != "" {
		fmt.Fprintln(h, "precision", p)
	}
	if len(e.Reproduces) > 0 {
		fmt.Fprintf(h, "reproduces %q\n", e.Reproduces)
	}
	for _, c := range e.Clients {
		fmt.Fprintln(h, c.ID, c.Backbone.Name(), c.Train.Labels(), c.Test.Labels())
	}
	if len(e.Clients) == 0 { // they are elsewhere
		fmt.Fprintln(h, e.Plan.Clients)
		for _, x := range e.Exams {
			fmt.Fprintln(h, x.Name)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// otherPrecision is the precision of features where it is not half.
func (e *Experiment) otherPrecision() string {
	if e.Precision == "half" {
		return ""
	}
	return e.Precision
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
	if server.shared != nil {
		server.shared.state = pos.optimizer
	}
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
	if s.shared != nil {
		pos.optimizer = s.shared.state
	}
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
		return fmt.Errorf("round %d is done, but its line could not be written: %w; add --resume to go on", rec.Round+1,
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
	members := e.members(set)
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

// Keys of the metadata of PromptsFile, each a JSON list of names.
const (
	MetaClasses   = "classes"
	MetaBackbones = "backbones" // of each client
	MetaOwned     = "owned"     // classes that each client has examples of
)

// about is what PromptsFile says of the run beside tensors. Which classes clients elsewhere have examples of is theirs
// to know.
func (e *Experiment) about(members []Member) (map[string]string, error) {
	backbones, owned := make([]string, len(members)), make([][]int64, len(members))
	for i, m := range members {
		backbones[i] = m.Task.Backbone
	}
	for i, c := range e.Clients {
		owned[i] = c.classes()
	}
	return e.metadata(backbones, owned)
}

// metadata is that of PromptsFile: the backbone of each client, and the classes that it has examples of.
func (e *Experiment) metadata(backbones []string, owned [][]int64) (map[string]string, error) {
	meta := map[string]string{}
	for key, list := range map[string]any{MetaClasses: e.Classes, MetaBackbones: backbones, MetaOwned: owned} {
		b, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		meta[key] = string(b)
	}
	return meta, nil
}
