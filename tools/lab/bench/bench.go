package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/projection"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// Options are the settings of a measurement. The zero value measures everything, with random weights of ViT-B/16's
// size.
type Options struct {
	Quick    bool           // fewer repetitions; small towers where the measurement has no small part
	Classes  []string       // names out of cifar10, cifar100 and thousand; empty means the first two
	Threads  []int          // ONNX Runtime's threads within a step; empty means 1 and the number of cores
	Backbone *bundle.Bundle // nil means random weights
	Session  ort.Options    // options of every session; threads and weights are set per session
	Only     []string       // methods of Methods, parts of ComparePyTorch (empty means all), or the one of Experiment
	Image    string         // tower of Methods or Experiment; see fullTowers
	Memory   int            // spec.Training.Memory for Methods and Experiment
	Workers  int            // clients that train in parallel in Methods and Experiment; 0 means one and one per core
	Rounds   int            // of Experiment and CompareSimulator, after a first one that compiles; 0 means the default
	Program  string         // promptfed's file, which Start starts
	Clients  []int          // numbers of clients of Clients
	Against  string         // the simulator of CompareSimulator: flower or pfl
	Python   string         // interpreter of ComparePyTorch and CompareSimulator
	// Progress is called before each run; may be nil.
	Progress func(what string, done, total int)

	arch clip.TextArch // architecture of the random weights; zero means clip.TextB

	images     map[string]clip.VisionArch // image towers of ComparePyTorch; nil means fullBackbones and all precisions
	precisions []string
}

// quickClasses is the largest number of classes in the plain step when Quick is set.
const quickClasses = 10

// classSet is a class list.
type classSet struct {
	name    string
	classes clip.NamedClasses
	speedup float64 // target: the plain step's time divided by the step's time
}

var sets = []classSet{{"cifar10", clip.CIFAR10, 7}, {"cifar100", clip.CIFAR100, 15}, {"thousand", thousand(), 15}}

// thousand returns CIFAR-100's classes ten times, each copy with one more token before the name.
func thousand() (out clip.NamedClasses) {
	for i := range 10 {
		for _, c := range clip.CIFAR100 {
			c.Name, c.IDs = fmt.Sprint(i, " ", c.Name), append([]int{i}, c.IDs...)
			out = append(out, c)
		}
	}
	return out
}

// Targets of the project: a step's rate in percent of the GEMM rate, and the percent of the time that a training or an
// image tower should spend in matrix products.
const (
	wantOfGEMM   = 90
	wantProducts = 70
)

// Measurement is a measurement that runs: its settings and what it found.
type Measurement struct {
	Options
	Report
	lists   []classSet
	threads []int
	dir     string // for random weights and results, until it ends
}

// Measure runs one of the measurements of this package: Run, Clients, Start, Methods, SVD, Features, Experiment,
// ComparePyTorch or CompareSimulator. It stops with an error when ctx ends.
func Measure(ctx context.Context, options Options, what func(context.Context, *Measurement) error) (_ Report,
	err error) {
	m := &Measurement{Options: options, threads: options.Threads}
	for _, name := range options.Classes {
		i := slices.IndexFunc(sets, func(s classSet) bool { return s.name == name })
		if i < 0 {
			return m.Report, fmt.Errorf("classes: %q is not known; take cifar10, cifar100, thousand or several", name)
		}
		m.lists = append(m.lists, sets[i])
	}

	if len(m.lists) == 0 {
		m.lists = sets[:2]
	}

	if len(m.threads) == 0 {
		m.threads = slices.Compact([]int{1, runtime.NumCPU()})
	}

	if i := slices.IndexFunc(m.threads, func(n int) bool { return n < 1 }); i >= 0 {
		return m.Report, fmt.Errorf("threads: %d; it must be 1 or more", m.threads[i])
	}

	if m.Rounds < 0 {
		return m.Report, fmt.Errorf("rounds: %d; it must be 1 or more", m.Rounds)
	}

	if m.arch.Width == 0 {
		m.arch = clip.TextB
	}

	if m.Progress == nil {
		m.Progress = func(string, int, int) {}
	}

	if m.dir, err = os.MkdirTemp("", "promptfed-bench-"); err != nil {
		return m.Report, fmt.Errorf("a folder for random weights: %w; set TMPDIR to a folder with room for 2 GB", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()

	err = what(ctx, m)
	return m.Report, err
}

// firstThreads returns the first number of threads, or one per core.
func (o Options) firstThreads() int {
	if len(o.Threads) > 0 {
		return o.Threads[0]
	}
	return runtime.NumCPU()
}

// session returns the options of a session with the given number of threads.
func (o Options) session(threads int) ort.Options {
	o.Session.IntraThreads = threads
	return o.Session
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// resultColumns are the columns of Run's first table: for one class list and one number of threads the training step,
// its plain form, and bare products with the step's shapes. GEMM are ONNX Runtime's products, own those of the step,
// 1024³ one of square matrices. FedPHA is its step with three prompts and the projector, beside GEMM with its shapes.
// Memory is per worker and without weights.
var resultColumns = []string{"classes", "threads", "step ms (min-max)", "plain ms (min-max)", "faster", "step GFLOP/s",
	"GEMM GFLOP/s", "of GEMM", "own GFLOP/s", "of own", "1024³ GFLOP/s", "FedPHA ms", "of its GEMM",
	"gradients differ", "step MB", "plain MB"}

// Run measures the training step. It takes minutes, or about one minute with Quick.
func Run(ctx context.Context, m *Measurement) error {
	m.Progress("weights of the text tower", 0, 1)
	tower, err := m.tower()
	if err != nil {
		return err
	}

	m.Progress("weights of the text tower", 1, 1)
	weights, err := m.backboneBytes(ctx, tower)
	if err != nil {
		return fmt.Errorf("memory of the backbone: %w", err)
	}

	m.Title = fmt.Sprintf("text tower %s: width %d, %d layers; prompts of %d tokens, %d images a step; %d cores, "+
		"%s, "+
		"prepacked weights %v, %d MB for the backbone", tower.Name(), tower.text().Width, tower.text().Layers, tokens,
		batch, runtime.NumCPU(), platform(), m.Session.Prepack, megabytes(weights))

	results := m.table(resultColumns, "times are medians; \"faster\", \"of GEMM\" and \"of "+
		"own\" are medians of ratios within a turn; GEMM are ONNX Runtime's matrix products, own those that the "+
		"step takes")
	beside := m.table([]string{"classes", "clients side by side", "ms of a step each", "in turn, on all threads",
		"faster"})
	projectors := m.table([]string{"projector of FedPHA", "ms"})
	var fedpha []float64
	for _, set := range m.lists {
		for _, threads := range m.threads {
			label := fmt.Sprintf("%s, threads %d", set.name, threads)
			seconds, err := m.measure(ctx, tower, set, threads, label, results)
			if err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
			fedpha = append(fedpha, seconds)
			projectors.Columns = append(projectors.Columns, "of "+label)
		}

		if n := slices.Max(m.threads); n > 1 {
			if err := m.sideBySide(ctx, tower, set, n, beside); err != nil {
				return fmt.Errorf("%s, clients side by side: %w", set.name, err)
			}
		}
	}

	m.Tables = slices.DeleteFunc(m.Tables, func(t *Table) bool { return t == beside && t.Rows == nil })
	return m.projectors(ctx, tower.text().Width, fedpha, projectors)
}

// backboneBytes returns the increase of resident memory after a tower's step was compiled and run, in bytes: the
// weights that sessions share.
func (o Options) backboneBytes(ctx context.Context, t *tower) (bytes int64, err error) {
	before, err := held()
	if err != nil {
		return 0, err
	}

	s, err := promptFL(t, clip.CIFAR10.Names(), o.Session, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	if err := s.run(ctx); err != nil {
		return 0, err
	}

	after, err := held()
	return max(0, after-before), err
}

// measure compares the step with the plain step and with bare products, on one class list and one number of threads. It
// returns the seconds of a step of FedPHA.
func (m *Measurement) measure(ctx context.Context, tower *tower, set classSet, threads int, label string,
	results *Table) (seconds float64, err error) {
	session, classes := m.session(threads), set.classes.Names()
	few := classes[:m.plainClasses(tower.text().TextArch, len(classes))]
	plainTower := tower.asPlain()
	got, err := gradient(ctx, promptFL, tower, few, session) // loads the weights, which both forms share
	if err != nil {
		return 0, err
	}

	want, err := gradient(ctx, promptFL, plainTower, few, session)
	if err != nil {
		return 0, fmt.Errorf("plain step: %w", err)
	}

	var open opened
	defer open.close(&err)
	plain := open.step(promptFL(plainTower, few, session, nil))
	step := open.step(promptFL(tower, classes, session, nil))
	three := open.step(fedPHA(tower, classes, session, nil))
	if open.err != nil {
		return 0, open.err
	}

	gemm := open.products(towerProducts(tower, step.rows, true, session))
	own := open.products(towerProducts(tower, step.rows, false, session))
	gemm3 := open.products(towerProducts(tower, three.rows, true, session))
	square := open.products(squareProduct(session))
	if open.err != nil {
		return 0, open.err
	}

	m.Progress(label+", plain form", 0, 1)
	plainBytes, err := grown(ctx, plain.run)
	if err != nil {
		return 0, fmt.Errorf("plain step: %w", err)
	}

	m.Progress(label+", plain form", 1, 1)
	stepBytes, err := grown(ctx, step.run)
	if err != nil {
		return 0, fmt.Errorf("step: %w", err)
	}

	plain.slow, plain.scale = true, float64(len(classes))/float64(len(few))
	if err := m.steps(ctx, label, &step.contestant, &gemm.contestant, &own.contestant, &three.contestant,
		&gemm3.contestant, &square.contestant, &plain.contestant); err != nil {
		return 0, err
	}

	faster, ofGEMM := ratio(&plain.contestant, &step.contestant), step.ofRate(&gemm.contestant)
	results.add(set.name, threads, step.timing(), plain.timing(), Number{faster, "%.1fx"}, tenths(step.rate()),
		tenths(gemm.rate()), percent(ofGEMM), tenths(own.rate()), percent(step.ofRate(&own.contestant)),
		tenths(square.rate()), tenths(1e3*median(three.seconds)), percent(three.ofRate(&gemm3.contestant)),
		scientific(distance(got, want)), megabytes(stepBytes), megabytes(plainBytes))

	if len(few) < len(classes) {
		results.Notes = append(results.Notes, fmt.Sprintf("%s: the plain step ran on %d of %d classes at a time, to "+
			"save memory and time; its time and memory are of those, the time scaled to all.", label, len(few),
			len(classes)))
	}

	m.atLeast(label+": times faster than the plain step", set.speedup, faster)
	m.atLeast(label+": % of the GEMM rate", wantOfGEMM, ofGEMM)
	return median(three.seconds), nil
}

// sideBySide compares n clients of one thread each with one client of n threads, over n steps.
func (o Options) sideBySide(ctx context.Context, t *tower, set classSet, n int, results *Table) (err error) {
	var open opened
	defer open.close(&err)
	narrow := open.step(promptFL(t, set.classes.Names(), o.session(1), nil))
	wide := open.step(promptFL(t, set.classes.Names(), o.session(n), nil))
	if open.err != nil {
		return open.err
	}

	if err := narrow.run(ctx); err != nil {
		return err
	}

	together := &contestant{what: "clients side by side", run: parallel(n, n, narrow.run)}
	inTurn := &contestant{what: "clients in turn", run: parallel(n, 1, wide.run)}
	if err := o.steps(ctx, set.name+", clients side by side", together, inTurn); err != nil {
		return err
	}

	results.add(set.name, n, together.timing(), inTurn.timing(), factor(ratio(inTurn, together)))
	return nil
}

// projectors times FedPHA's projector Q [w,w] of a prompt [T,w] for each kind, beside steps of FedPHA.
func (o Options) projectors(ctx context.Context, width int, steps []float64, results *Table) error {
	prompt := method.Draw(seed, 0, "global", []int{tokens, width}, promptStd)
	var all []*contestant
	for _, kind := range projection.Kinds() {
		all = append(all, &contestant{what: kind, run: func(context.Context) error {
			_, _, err := projection.OfPrompt{Projector: kind, Ratio: removed}.Factors(prompt)
			return err
		}})
	}

	if err := o.steps(ctx, "projectors", all...); err != nil {
		return err
	}

	for _, c := range all {
		row := []any{c.what, c.timing()}
		for _, s := range steps {
			row = append(row, Number{100 * median(c.seconds) / s, "%.1f %%"})
		}
		results.add(row...)
	}

	return nil
}
