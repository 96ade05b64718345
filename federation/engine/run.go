package engine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Experiment is everything that decides what a run computes.
type Experiment struct {
	Name       string
	MethodName string // for reports and the fingerprint: carrier and wrappers
	Options    string // of the methods, for the fingerprint
	Method     method.Method
	Classes    []string
	Template   string // of hand-written prompts, with {} for the class
	Clients    []*Client
	Training   Training
	Synthetic  *Synthetic // nil for none
	Exams      []Exam
	Plan       Plan // Clients and Peers are filled in
}

// Settings decide how a run goes, not what it computes.
type Settings struct {
	Dir     string // run folder; empty keeps everything in memory
	Resume  bool
	Workers int
	Session ort.Options
	Encode  bool // send every message through its encoded form
	// Provider is what sessions run on, and why if that was not the first choice, for the summary; empty leaves it out.
	Provider string
	Tracer   Tracer // nil for none
	OnTurn   func(o Order, client int)
	OnRound  func(Record)
	// Lost loses a client's answers of a round, as a client does that leaves: the round goes on with the others, and the
	// client remembers what it did before. Nil loses none.
	Lost func(round, client int) bool
	// OnUpload sees every upload as it is encoded, with Encode, from any goroutine; may be nil.
	OnUpload func(round, client int, message []byte)
}

// Result is a finished run.
type Result struct {
	Summary Summary
	Records []Record
	// Prompts are what PromptsFile holds, of a run without a folder: shared/NAME, client/K/private/NAME, client/K/own/NAME, and
	// where class scores read them memory/K/image, memory/K/label and down/K/NAME.
	Prompts tensor.Map
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
	if err := e.check(); err != nil {
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
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("run folder: %w; choose another --out", err)
		}
		store = NewStore(dir)
	}
	pool := &Pool{Worker: worker, Clients: e.Clients, Workers: set.Workers, Store: store, Encode: set.Encode, Done: set.OnTurn}
	if set.Lost != nil {
		pool.Lost = func(o Order, client int) bool { return set.Lost(o.Round, client) }
	}
	if set.OnUpload != nil {
		pool.Sent = func(o Order, client int, message []byte) { set.OnUpload(o.Round, client, message) }
	}
	server := &Server{Method: e.Method, Cohort: pool, Plan: e.plan(), Rate: rate, Tracer: set.Tracer, c: worker.c}
	for _, x := range e.Exams {
		server.Exams = append(server.Exams, x.Name)
	}
	if err := server.start(worker.task(e.Clients[0], len(e.Clients))); err != nil {
		return nil, err
	}
	j, err := e.resume(set, server, store)
	if err != nil {
		return nil, err
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
	for server.Global.Round < e.Plan.Rounds {
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
func (e *Experiment) plan() Plan {
	p := e.Plan
	p.Clients, p.Peers = len(e.Clients), nil
	for _, c := range e.Clients {
		p.Peers = append(p.Peers, method.Peer{Backbone: c.Backbone.Name(), Dim: c.Backbone.Task().Dim, Domain: c.Domain})
	}
	return p
}

// check finds what cannot work before round 0.
func (e *Experiment) check() error {
	if len(e.Clients) == 0 {
		return errors.New("the experiment has no clients")
	}
	if e.Plan.Rounds < 1 || e.Training.Epochs < 1 || e.Training.Batch < 1 {
		return fmt.Errorf("train.rounds, train.epochs and train.batch are %d, %d and %d; each must be 1 or more",
			e.Plan.Rounds, e.Training.Epochs, e.Training.Batch)
	}
	if p := e.Plan.Participation; !(p >= 0 && p <= 1) {
		return fmt.Errorf("participation is %v; it must lie above 0 and at most at 1 (0 counts as 1)", p)
	}
	for _, id := range e.Plan.Trainers {
		if id < 0 || id >= len(e.Clients) {
			return fmt.Errorf("client %d is to train, but there are %d clients", id, len(e.Clients))
		}
	}
	if len(e.Classes) == 0 {
		return errors.New("the experiment has no classes")
	}
	if _, err := optim.New(e.Training.Optim); err != nil {
		return err
	}
	if e.Synthetic != nil {
		if err := e.Synthetic.check(len(e.Classes)); err != nil {
			return err
		}
	}
	first := map[string]string{}
	backbones := map[string]Backbone{}
	for i, c := range e.Clients {
		if c.ID != i {
			return fmt.Errorf("client %d stands at place %d; clients must be numbered from 0 in order", c.ID, i)
		}
		if b, ok := backbones[c.Backbone.Name()]; ok && b != c.Backbone {
			return fmt.Errorf("client %d: another backbone is called %s too; give one of them another name", c.ID, c.Backbone.Name())
		}
		backbones[c.Backbone.Name()] = c.Backbone
		if c.Train.Len() == 0 {
			return fmt.Errorf("client %d has no training data; use fewer clients or another partition", c.ID)
		}
		if c.Test.Len() == 0 {
			return fmt.Errorf("client %d has no test data; use fewer clients or another partition", c.ID)
		}
		for _, y := range slices.Concat(c.Train.Labels(), c.Test.Labels()) {
			if y < 0 || y >= int64(len(e.Classes)) {
				return fmt.Errorf("client %d has label %d, but there are %d classes", c.ID, y, len(e.Classes))
			}
		}
		for _, p := range e.Method.Params(e.task(c)) {
			if p.Owner != method.Shared {
				continue
			}
			here := fmt.Sprint(p.Shape)
			if shape, ok := first[p.Name]; ok && shape != here {
				return fmt.Errorf("parameter %s is %s on client %d (backbone %s) and %s on others; it cannot be averaged: use backbones of one text width, and of one image tower where its prompts are shared",
					p.Name, here, c.ID, c.Backbone.Name(), shape)
			}
			first[p.Name] = here
		}
	}
	return e.checkExams()
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
	fmt.Fprintln(h, e.MethodName, e.Options, e.Plan.Seed, e.Plan.Participation, e.Plan.Trainers, strings.Join(e.Classes, "|"), e.Template)
	fmt.Fprintf(h, "%+v\n", e.Training)
	for _, c := range e.Clients {
		fmt.Fprintln(h, c.ID, c.Backbone.Name(), c.Train.Labels(), c.Test.Labels())
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
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
			return nil, fmt.Errorf("%s holds a run already; add --resume to go on with it, or choose another --out", set.Dir)
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
		return nil, fmt.Errorf("cannot resume: %s holds another experiment (method, options, classes, backbones, partition or training differ); use another --out", set.Dir)
	}
	if err := store.load(pos.Clients); err != nil {
		return nil, err
	}
	return openJournal(rounds, pos.Round, pos.Record)
}

// commit makes a round count: from here on a crash resumes after it.
func (e *Experiment) commit(set Settings, s *Server, store *Store, j *journal, rec Record) error {
	if set.Dir == "" {
		j.Records = append(j.Records, rec)
		return nil
	}
	pos := position{Round: s.Global.Round, Fingerprint: e.Fingerprint(), Clients: store.places(), Record: rec}
	if err := saveCheckpoint(filepath.Join(set.Dir, CheckFolder), &s.Global, pos); err != nil {
		return err
	}
	store.sweep()
	if err := j.add(rec); err != nil {
		return fmt.Errorf("round %d is done, but its line could not be written: %w; add --resume to go on", rec.Round, err)
	}
	return nil
}

func (e *Experiment) finish(set Settings, s *Server, store *Store, j *journal) (*Result, error) {
	r := &Result{Records: j.Records, Summary: Summarise(j.Records)}
	r.Summary.Provider = set.Provider
	r.Summary.Name, r.Summary.Method, r.Summary.View = e.Name, e.MethodName, s.Method.View().String()
	parts := e.parts(&s.Global, store)
	if set.Dir == "" {
		r.Prompts = tensor.Map{}
		for _, load := range parts {
			m, err := load()
			if err != nil {
				return nil, err
			}
			maps.Copy(r.Prompts, m)
		}
		return r, nil
	}
	meta, err := e.about()
	if err != nil {
		return nil, err
	}
	if err := writeParts(filepath.Join(set.Dir, PromptsFile), parts, meta); err != nil {
		return nil, err
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

// about is what PromptsFile says of the run beside tensors.
func (e *Experiment) about() (map[string]string, error) {
	backbones, owned := make([]string, len(e.Clients)), make([][]int64, len(e.Clients))
	for i, c := range e.Clients {
		backbones[i] = c.Backbone.Name()
		owned[i] = slices.Compact(slices.Sorted(slices.Values(c.Train.Labels())))
	}
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
