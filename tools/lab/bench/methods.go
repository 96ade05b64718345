package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// MethodsOptions are the settings of Methods.
type MethodsOptions struct {
	Quick    bool     // towers of one and two blocks
	Only     []string // methods and wrappers; empty means all
	Threads  int      // ONNX Runtime's threads; 0 means one per core
	Image    string   // image tower: rn50, rn101, vit-b32 (default) or vit-b16
	Memory   int      // spec.Training.Memory
	Workers  int      // clients that train in parallel; 0 means 1
	Session  ort.Options
	Progress func(what string, done, total int) // may be nil
}

// MethodsReport is the result of Methods.
type MethodsReport struct {
	Quick   bool         `json:"quick"`
	Image   string       `json:"image_tower"`
	Threads int          `json:"threads"`
	Steps   []MethodStep `json:"steps"`
}

// MethodStep is one client training of a single step, on 32 images and 10 classes.
type MethodStep struct {
	Method   string  `json:"method"`   // with a plus in front: a wrapper over promptfl
	Turn     Timing  `json:"turn"`     // seconds between the starts of two trainings of one step
	Products float64 `json:"products"` // percent of Turn spent in matrix products and convolutions
	// Operators are the slowest operators beside products, in percent of Turn. The entry other is the time outside ONNX
	// Runtime.
	Operators []Share `json:"operators"`
	// BackboneBytes is the memory that stays resident between trainings, once for any number of workers: weights,
	// packed weights, compiled graphs and data. WorkerBytes is the largest additional memory during a training, divided
	// by the number of workers. Both are 0 on systems without these numbers.
	BackboneBytes int64 `json:"backbone_bytes"`
	WorkerBytes   int64 `json:"worker_bytes"`
	// LeftToCPU lists operators that another provider leaves to the CPU.
	LeftToCPU []string `json:"left_to_cpu,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// Share is one operator's share of a training.
type Share struct {
	What    string  `json:"what"`
	Percent float64 `json:"percent"`
}

const (
	methodRounds  = 4 // the first round compiles
	methodClients = 2
)

// Methods measures a client's training of one step with every base method, and with every wrapper over promptfl, on
// full-size towers with random weights.
func Methods(ctx context.Context, o MethodsOptions) (r MethodsReport, err error) {
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	o.Session.IntraThreads = cmp.Or(o.Threads, runtime.NumCPU())
	vision, text := clip.VisionArch{}, clip.TextB
	r.Quick, r.Image, r.Threads = o.Quick, cmp.Or(o.Image, "vit-b32"), o.Session.IntraThreads
	for _, b := range fullBackbones {
		if b.name == r.Image {
			vision = b.vision
		}
	}
	switch {
	case o.Quick:
		r.Image = "two blocks"
		text, vision = oneBlock, clip.VisionArch{Width: 64, Layers: 2, Heads: 2, Patch: 32, Image: 64, EmbedDim: 512}
	case vision.Width == 0:
		return r, fmt.Errorf("image tower %q is not known; take rn50, rn101, vit-b32 or vit-b16", o.Image)
	}
	text.EmbedDim = vision.EmbedDim
	todo, err := methodNames(o.Only)
	if err != nil {
		return r, err
	}
	dir, remove, err := scratch("600 MB")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	t, err := randomTower("random", text, vision, dir)
	if err != nil {
		return r, err
	}
	words, err := bundle.Find("tiny-vit-b16")
	if err != nil {
		return r, err
	}
	for i, d := range todo {
		o.Progress("methods", i, len(todo))
		step, err := o.method(ctx, fullSizeOf(t, words), d, filepath.Join(dir, d.Name))
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			step.Error = err.Error()
		}
		r.Steps = append(r.Steps, step)
	}
	o.Progress("methods", len(todo), len(todo))
	return r, nil
}

// methodNames returns the definitions of the methods to measure.
func methodNames(only []string) ([]layer.Def, error) {
	if len(only) == 0 {
		return methods.Table(), nil
	}
	var out []layer.Def
	for _, name := range only {
		d, err := methods.Find(name)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// method measures one method.
func (o MethodsOptions) method(ctx context.Context, b fullSize, d layer.Def, profile string) (s MethodStep,
	err error) {
	s.Method = d.Name
	base, with := d.Name, []string(nil)
	if d.Wrapper() {
		s.Method, base, with = "+ "+d.Name, "promptfl", []string{d.Name}
	}
	p := protocol{method: base, with: with, classes: clip.CIFAR10.Names(), clients: methodClients, participation: 1,
		batch: batch, rounds: methodRounds, testEvery: methodRounds}
	e, err := p.describe()
	if err != nil {
		return s, err
	}
	e.Training.Memory = o.Memory
	if len(e.Method.Params(b.Task())) == 0 {
		return s, errors.New("it learns nothing")
	}
	drawn, reads := examples{}, e.Reads(b)
	for i := range methodClients {
		e.Clients = append(e.Clients, &spec.Client{ID: i, Backbone: b,
			Train: drawn.of(b.Task(), i, "train", inTurn(len(p.classes)), reads),
			Test:  drawn.of(b.Task(), i, "test", inTurn(len(p.classes)), reads)})
	}
	if methods.NeedsSynthetic(e.Method) {
		e.Synthetic = &spec.Synthetic{Backbone: b, Epochs: 1,
			Data: drawn.of(b.Task(), -1, "synthetic", inTurn(len(p.classes)), reads)}
	}
	before, err := held()
	if err != nil {
		return s, err
	}
	session := o.Session
	session.Profile = profile
	var turns []float64
	var between int64
	var unheld error
	workers, done, last := max(1, o.Workers), 0, time.Now()
	enough, stop := context.WithCancel(ctx) // before the test, whose sessions would enter the profile
	defer stop()
	var mu sync.Mutex
	timed := func(i message.Instruction, _ int) {
		mu.Lock()
		defer mu.Unlock()
		seconds := time.Since(last).Seconds()
		if i.Kind == message.Train {
			if done++; done > methodClients {
				turns = append(turns, seconds)
			} else {
				var err error
				between, err = held()
				unheld = errors.Join(unheld, err)
				resetPeak()
			}
			if done == methodClients*methodRounds {
				stop()
			}
		}
		last = time.Now()
	}
	_, err = engine.Run(enough, e, engine.Settings{Settings: client.Settings{Session: session, PrefixBytes: -1},
		Workers: workers, OnTurn: timed})
	if unheld != nil || err != nil && !(errors.Is(err, context.Canceled) && done == methodClients*methodRounds) {
		return s, errors.Join(unheld, err)
	}
	s.BackboneBytes = max(0, between-before)
	if peak := peakResident(); peak > 0 {
		s.WorkerBytes = max(0, peak-between) / int64(workers)
	}
	s.Turn = summary(turns)
	spent, left, err := readProfiles(profile, methodRounds)
	if err != nil {
		return s, err
	}
	s.LeftToCPU = slices.Sorted(maps.Keys(left))
	total := 0.0
	for _, t := range turns {
		total += t
	}
	s.shares(spent, total*float64(workers))
	return s, nil
}

// shares divides the seconds of the trainings among operators.
func (s *MethodStep) shares(spent map[string]float64, total float64) {
	multiplying, all := inProducts(spent)
	s.Products = 100 * multiplying / total
	for op, seconds := range spent {
		if !multiplies[op] {
			s.Operators = append(s.Operators, Share{op, 100 * seconds / total})
		}
	}
	s.Operators = append(s.Operators, Share{"other", max(0, 100*(1-all/total))})
	slices.SortFunc(s.Operators, func(a, b Share) int { return cmp.Compare(b.Percent, a.Percent) })
	s.Operators = s.Operators[:min(3, len(s.Operators))]
}

// Table returns the report as text.
func (r MethodsReport) Table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "a client's turn of one step: %d images, 10 classes, random weights of ViT-B/16's text tower and "+
		"%s, %d threads, %s/%s\n\n", batch, r.Image, r.Threads, runtime.GOOS, runtime.GOARCH)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "method\tms (min-max)\tproducts\tbackbone MB\tworker MB\tbeside products, of the turn")
	for _, s := range r.Steps {
		if s.Error != "" {
			fmt.Fprintf(w, "%s\tnot measured: %s\n", s.Method, s.Error)
			continue
		}
		var ops []string
		for _, o := range s.Operators {
			ops = append(ops, fmt.Sprintf("%s %.0f %%", o.What, o.Percent))
		}
		if len(s.LeftToCPU) > 0 {
			ops = append(ops, "left to the CPU: "+strings.Join(s.LeftToCPU, " "))
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f %%\t%d\t%d\t%s\n", s.Method, ms(s.Turn), s.Products, s.BackboneBytes/1e6,
			s.WorkerBytes/1e6, strings.Join(ops, ", "))
	}
	w.Flush()
	fmt.Fprintln(&b, "times are medians; products are matrix products and convolutions; a method with + is a wrapper, "+
		"over promptfl; other is outside ONNX Runtime; backbone MB are there once for all workers, worker MB in each")
	return b.String()
}

// Missed returns the methods on full-size towers below wantProducts.
func (r MethodsReport) Missed() []Target {
	var out []Target
	for _, s := range r.Steps {
		if !r.Quick && s.Error == "" && s.Products < wantProducts {
			out = append(out, Target{What: "share of products of " + s.Method + ", in percent,", Want: wantProducts,
				Got: s.Products})
		}
	}
	return out
}

// wantProducts is the target for the share of matrix products and convolutions in a training, in percent.
const wantProducts = 70
