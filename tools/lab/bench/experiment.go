package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// ExperimentOptions are the settings of Experiment.
type ExperimentOptions struct {
	Quick    bool // one text tower of one block instead of four full-size backbones, fewer clients and rounds
	Method   string
	Rounds   int // measured rounds after a first round that compiles; 0 means 3
	Workers  int // 0 means one per core
	Session  ort.Options
	Progress func(what string, done, total int) // may be nil
}

// ExperimentReport is the result of Experiment. Times are in seconds.
type ExperimentReport struct {
	Quick     bool            `json:"quick"`
	Method    string          `json:"method"`
	Backbones []string        `json:"backbones"`
	Clients   int             `json:"clients"`
	Trained   int             `json:"trained"` // clients per round
	Classes   int             `json:"classes"`
	Images    int             `json:"images"`
	Workers   int             `json:"workers"`
	Rounds    []record.Phases `json:"rounds"` // the first round compiles
	Seconds   []float64       `json:"seconds"`
	Median    record.Phases   `json:"median"` // over the rounds after the first
	// Published estimates the time of the same rounds when every batch runs through both towers, as in public code, in
	// the same ONNX Runtime. The estimate multiplies measured step times. Phases are medians over the rounds.
	Published struct {
		Text       float64            `json:"text"`         // text tower in a training step, over all positions
		TextOnly   float64            `json:"text_forward"` // text tower in a test batch
		Image      map[string]float64 `json:"image"`        // image tower of each backbone, for one image
		Training   float64            `json:"training"`
		Evaluation float64            `json:"evaluation"`
	} `json:"published"`
	Bytes int64 `json:"bytes"` // largest resident memory at the end of a round
	Cost  Cost  `json:"cost"`
}

// Cost is the overhead of clients beside ONNX Runtime, in an experiment with many clients, a text tower of one block of
// CLIP's width, one worker, state on disk and every message encoded. The first round compiles and does not count.
type Cost struct {
	Clients       int     `json:"clients"`
	Rounds        int     `json:"rounds"`
	Trainings     int     `json:"turns"` // number of client trainings
	Seconds       float64 `json:"seconds"`
	NativeSeconds float64 `json:"inside"` // seconds of all trainings inside ONNX Runtime
	Overhead      float64 `json:"rest"`   // other seconds per training, including its share of tests and server
	// OverheadCPU is the processor time of Overhead, without waiting for a core. It equals Overhead on systems without
	// processor times.
	OverheadCPU float64       `json:"own"`
	Phases      record.Phases `json:"phases"` // of all rounds; disk includes the checkpoints between rounds
	// Heap is Go's memory in use after a tenth of the rounds and after the last round. Resident is the process's memory
	// at the same times.
	Heap     [2]int64 `json:"heap"`
	Resident [2]int64 `json:"resident"`
}

// fullBackbones are the backbones of Table S5.
var fullBackbones = []struct {
	name   string
	vision clip.VisionArch
}{{"rn50", clip.RN50}, {"rn101", clip.RN101}, {"vit-b32", clip.VisionB32}, {"vit-b16", clip.VisionB16}}

// oneBlock is a text tower with almost no cost, whose prompts have CLIP's width.
var oneBlock = clip.TextArch{Width: 512, Layers: 1, Heads: 8, MLP: 64, Context: 77, EmbedDim: 512}

// Experiment measures whole experiments. First it runs rounds of Table S5's protocol that test all clients in every
// round. Then it measures the overhead per client with many clients: a tenth of them trains in each round, and every
// tenth round tests all.
func Experiment(ctx context.Context, o ExperimentOptions) (r ExperimentReport, err error) {
	if o.Workers == 0 {
		o.Workers = runtime.NumCPU()
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	dir, remove, err := scratch("1.5 GB")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := r.rounds(ctx, o, dir); err != nil {
		return r, err
	}
	debug.FreeOSMemory()
	return r, r.cost(ctx, o, dir)
}

// rounds measures rounds of Table S5's protocol.
func (r *ExperimentReport) rounds(ctx context.Context, o ExperimentOptions, dir string) error {
	p := tableS5()
	p.rounds = 1 + o.Rounds
	if o.Method != "" && o.Method != p.method {
		p.method, p.options = o.Method, nil
	}
	towers, err := experimentTowers(o, dir)
	if err != nil {
		return err
	}
	e, err := p.experiment(towers)
	if err != nil {
		return err
	}
	r.Quick, r.Method, r.Clients, r.Classes = o.Quick, p.method, p.clients, len(p.classes)
	r.Images, r.Workers = p.images, o.Workers
	for _, t := range towers {
		r.Backbones = append(r.Backbones, t.name)
	}
	run := filepath.Join(dir, "run")
	began := time.Now()
	var published []publishedRound
	_, err = engine.Run(ctx, e, engine.Settings{Settings: client.Settings{Session: o.Session}, Dir: run,
		Workers: o.Workers, Encode: true,
		OnRound: func(rec record.Record) {
			ph := *rec.Phases
			seconds := time.Since(began).Seconds()
			began = time.Now()
			ph.Disk += max(0, seconds-rec.Seconds) // the checkpoint
			r.Rounds, r.Seconds, r.Trained = append(r.Rounds, ph), append(r.Seconds, seconds), len(rec.Clients)
			published = append(published, countPublished(e, rec.Clients, p.batch))
			r.Bytes = max(r.Bytes, resident())
			o.Progress("rounds of "+p.method, len(r.Rounds), p.rounds)
		}})
	if err != nil {
		return err
	}
	r.Median = medianPhases(r.Rounds[1:])
	return r.publish(ctx, o, towers, published[1:], p)
}

// experimentTowers returns the backbones of the clients.
func experimentTowers(o ExperimentOptions, dir string) ([]*tower, error) {
	if o.Quick {
		t, err := randomTower("one-block", oneBlock, clip.VisionArch{}, dir)
		return []*tower{&t}, err
	}
	var out []*tower
	for i, b := range fullBackbones {
		o.Progress("random weights", i, len(fullBackbones))
		at := filepath.Join(dir, b.name)
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		text := clip.TextB
		text.EmbedDim = b.vision.EmbedDim
		t, err := randomTower(b.name, text, b.vision, at)
		if err != nil {
			return nil, err
		}
		out = append(out, &t)
	}
	o.Progress("random weights", len(fullBackbones), len(fullBackbones))
	return out, nil
}

// medianPhases returns the median of each phase.
func medianPhases(list []record.Phases) (m record.Phases) {
	for i, to := range phases(&m) {
		var all []float64
		for _, p := range list {
			all = append(all, *phases(&p)[i].of)
		}
		*to.of = median(all)
	}
	return m
}

// phase is one phase of record.Phases.
type phase struct {
	name string
	of   *float64
}

func phases(p *record.Phases) []phase {
	return []phase{{"training", &p.Training}, {"statistics", &p.Statistics}, {"evaluation", &p.Evaluation},
		{"server", &p.Server}, {"messages", &p.Messages}, {"disk", &p.Disk}}
}

// publishedRound counts the work of a round in public code, where every batch runs through both towers.
type publishedRound struct {
	steps, tests                int            // batches
	trainedImages, testedImages map[string]int // by backbone
}

func countPublished(e *spec.Experiment, trained []int, batch int) publishedRound {
	p := publishedRound{trainedImages: map[string]int{}, testedImages: map[string]int{}}
	batches := func(n int) int { return (n + batch - 1) / batch }
	for _, id := range trained {
		c := e.Clients[id]
		p.steps += batches(c.Train.Len())
		p.trainedImages[c.Backbone.Name()] += c.Train.Len()
	}
	for _, c := range e.Clients {
		p.tests += batches(c.Test.Len())
		p.testedImages[c.Backbone.Name()] += c.Test.Len()
	}
	return p
}

// publish measures the steps of the published form and estimates the time of the rounds.
func (r *ExperimentReport) publish(ctx context.Context, o ExperimentOptions, towers []*tower, rounds []publishedRound,
	p protocol) (err error) {
	session := o.Session
	session.IntraThreads = o.Workers // one client at a time, on all cores
	t := *towers[len(towers)-1]
	t.plain = true
	few := p.classes[:quickClasses]
	step, err := promptFL(t, few, 16, session, nil)
	if err != nil {
		return err
	}
	defer step.close()
	var open closer
	defer func() { err = errors.Join(err, open.close()) }()
	forward := func(what string, t tower, feed tensor.Map, build func(*graph.Graph) (graph.Node, error)) *contestant {
		n, e := build(graph.New())
		x, o := new(compiled), session
		o.WeightsDir = t.dir
		if e == nil {
			x, e = compile(n, feed, o)
		}
		if err = errors.Join(err, e); e == nil {
			open.add(x.close)
		}
		return &contestant{what: what, run: x.run}
	}
	ctx16 := method.Draw(seed, 0, "ctx", []int{16, t.text.Width}, promptStd)
	x := &contestant{what: "training step", run: step.run}
	y := forward("test", t, tensor.Map{"ctx": ctx16}, func(g *graph.Graph) (graph.Node, error) {
		out, err := t.Text(g, few, []method.Prompt{{Ctx: g.Input("ctx", graph.Float, graph.Static(ctx16.Shape...))}})
		if err != nil {
			return graph.Node{}, err
		}
		return out[0], nil
	})
	all := []*contestant{x, y}
	r.Published.Image = map[string]float64{}
	for _, t := range towers {
		if size := t.vision.Image; size > 0 {
			shape := []int{imagesAtOnce, 3, size, size}
			all = append(all, forward(t.name, *t, tensor.Map{bundle.PixelsInput: tensor.New(shape...)},
				func(g *graph.Graph) (graph.Node, error) {
					joint, _ := t.vision.Features(g, t.weights, bundle.AddPixelsInput(g, imagesAtOnce, size))
					return joint, g.Err()
				}))
		}
	}
	if err != nil {
		return err
	}
	if err := interleave(ctx, "published form", o.Progress, 1, 3, all...); err != nil {
		return err
	}
	scale := float64(len(p.classes)) / float64(len(few))
	r.Published.Text, r.Published.TextOnly = scale*median(x.seconds), scale*median(y.seconds)
	for _, c := range all[2:] {
		r.Published.Image[c.what] = median(c.seconds) / imagesAtOnce
	}
	var training, testing []float64
	for _, round := range rounds {
		a, b := float64(round.steps)*r.Published.Text, float64(round.tests)*r.Published.TextOnly
		for name, seconds := range r.Published.Image {
			a, b = a+seconds*float64(round.trainedImages[name]), b+seconds*float64(round.testedImages[name])
		}
		training, testing = append(training, a), append(testing, b)
	}
	r.Published.Training, r.Published.Evaluation = median(training), median(testing)
	return nil
}

// imagesAtOnce is the number of images in one timed run of an image tower.
const imagesAtOnce = 8

// cost measures the overhead of clients.
func (r *ExperimentReport) cost(ctx context.Context, o ExperimentOptions, dir string) error {
	p := tableS5()
	p.classes, p.clients, p.rounds, p.participation, p.testEvery = clip.CIFAR10.Names(), 1000, 100, 0.1, 10
	if o.Quick {
		p.clients, p.rounds = 200, 20
	}
	p.images = 20 * p.clients
	at := filepath.Join(dir, "cost")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	t, err := randomTower("one-block", oneBlock, clip.VisionArch{}, at)
	if err != nil {
		return err
	}
	e, err := p.experiment([]*tower{&t})
	if err != nil {
		return err
	}
	c := Cost{Clients: p.clients, Rounds: p.rounds}
	session := o.Session
	session.IntraThreads = 1
	began, inside, outside := time.Now(), ort.NativeTime(), ort.GoTime()
	last := began
	_, err = engine.Run(ctx, e, engine.Settings{Settings: client.Settings{Session: session}, Dir: filepath.Join(at,
		"run"), Workers: 1,
		Encode: true, OnRound: func(rec record.Record) {
			if rec.Round == 0 {
				began, inside, outside = time.Now(), ort.NativeTime(), ort.GoTime()
			} else {
				c.Trainings += len(rec.Clients)
				for i, ph := range phases(rec.Phases) {
					*phases(&c.Phases)[i].of += *ph.of
				}
				c.Phases.Disk += max(0, time.Since(last).Seconds()-rec.Seconds)
			}
			if n := rec.Round + 1; n == p.rounds/10 || n == p.rounds {
				i := n / p.rounds
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				c.Heap[i], c.Resident[i] = int64(m.HeapAlloc), resident()
			}
			o.Progress("cost of clients", rec.Round+1, p.rounds)
			last = time.Now()
		}})
	if err != nil {
		return err
	}
	c.Seconds, c.NativeSeconds = time.Since(began).Seconds(), (ort.NativeTime() - inside).Seconds()
	c.Overhead = (c.Seconds - c.NativeSeconds) / float64(c.Trainings)
	if c.OverheadCPU = (ort.GoTime() - outside).Seconds() / float64(c.Trainings); c.OverheadCPU <= 0 {
		c.OverheadCPU = c.Overhead
	}
	r.Cost = c
	return nil
}

// Table returns the report as text.
func (r ExperimentReport) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Table S5's protocol (FedAPPR) on random examples: %d clients, %d train in a round and all are "+
		"tested, %d classes, %d images; %s; random weights of %s; %d workers\n\n", r.Clients, r.Trained,
		r.Classes, r.Images, r.Method, strings.Join(r.Backbones, ", "), r.Workers)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name string, p record.Phases, seconds float64) {
		fmt.Fprint(w, name)
		for _, ph := range phases(&p) {
			fmt.Fprintf(w, "\t%.2f", *ph.of)
		}
		fmt.Fprintf(w, "\t%.2f\n", seconds)
	}
	fmt.Fprint(w, "seconds of round")
	for _, ph := range phases(&record.Phases{}) {
		fmt.Fprint(w, "\t", ph.name)
	}
	fmt.Fprintln(w, "\ttogether")
	for i, p := range r.Rounds {
		line(fmt.Sprint(i+1), p, r.Seconds[i])
	}
	line("median", r.Median, median(r.Seconds[1:]))
	w.Flush()
	fmt.Fprintln(&b, "round 1 compiles and is not in the median; disk is states of clients and the checkpoint")
	fmt.Fprintf(&b, "a round with its test takes %.2f times its training; %d MB resident\n",
		1+r.Median.Evaluation/r.Median.Training, r.Bytes/1e6)
	pub := r.Published
	fmt.Fprintf(&b, "\nthe published form, reckoned from its steps in the same ONNX Runtime on %d threads: %.1f s of "+
		"text tower for a training step, %.1f s for a test batch", r.Workers, pub.Text, pub.TextOnly)
	for _, name := range r.Backbones {
		if s, ok := pub.Image[name]; ok {
			fmt.Fprintf(&b, ", %.0f ms for an image through %s", 1e3*s, name)
		}
	}
	fmt.Fprintf(&b, "\n  training %.0f s a round, %.0f times ours; evaluation %.0f s, %.0f times ours\n", pub.Training,
		pub.Training/r.Median.Training, pub.Evaluation, pub.Evaluation/r.Median.Evaluation)
	c := r.Cost
	fmt.Fprintf(&b, "\n%d clients, %d rounds, a text tower of one block, one worker: %.1f s for %d clients' turns of "+
		"training and their tests, of them %.1f s in ONNX Runtime; the rest is %.2f ms for each client and round, "+
		"%.2f ms of them of the processor's time (wanted below %g)\n",
		c.Clients, c.Rounds, c.Seconds, c.Trainings, c.NativeSeconds, 1e3*c.Overhead, 1e3*c.OverheadCPU, 1e3*wantOwn)
	fmt.Fprint(&b, "  ms for each turn:")
	for _, ph := range phases(&c.Phases) {
		fmt.Fprintf(&b, " %s %.2f", ph.name, 1e3**ph.of/float64(c.Trainings))
	}
	fmt.Fprintf(&b, "\n  memory after a tenth of the rounds and at the end: heap %d and %d MB, resident %d and %d MB\n",
		c.Heap[0]/1e6, c.Heap[1]/1e6, c.Resident[0]/1e6, c.Resident[1]/1e6)
	return b.String()
}

// wantOwn is the target for a client's overhead in a round, in seconds of the processor.
const wantOwn = 0.002

// wantEvaluation is the target for the time of a round with its test, as a multiple of the training time.
const wantEvaluation = 1.4

// Missed returns the targets that were not reached.
func (r ExperimentReport) Missed() []Target {
	var out []Target
	for _, t := range []Target{
		{What: "a round with its test, in times of its training,", Want: wantEvaluation,
			Got: 1 + r.Median.Evaluation/r.Median.Training},
		{What: "processor time of a client and round beside computing, in seconds,", Want: wantOwn,
			Got: r.Cost.OverheadCPU}} {
		if t.Got > t.Want {
			out = append(out, t)
		}
	}
	return out
}
