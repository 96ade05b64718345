package methodtest

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
)

// Case is one method, or one stack of wrappers over a method, with options.
type Case struct {
	Name    string   // of the base method in methods.Table()
	With    []string // wrappers, inner first
	Options map[string]any
	// Zero are the options with which the outermost wrapper does nothing; nil for a case without wrappers, or for a
	// wrapper without such options.
	Zero map[string]any
	// NoDerivative is set where the gradient is not the derivative of the loss, by intention.
	NoDerivative bool
	// Alike is set where parameters can only be averaged over backbones of one embedding dimension.
	Alike bool
	// Noised is set where an upload is not the result of the client's last step, by intention.
	Noised bool
	// Loose is set where image features of a step need not be unit rows.
	Loose bool
	// Reach is how far one upload may move the shared parameters, in norms of the longest upload's update; 0 means 1.
	Reach float64
	Names Names
	// Sampled is set where another case runs every check of the method or wrapper. Each of the longest checks runs for
	// a ninth of the sampled cases, and resume tries one interruption.
	Sampled bool
	// Rounded, unless it is nil, gets how far the gradient of a parameter differs with products of low precision, in
	// shares of the largest element.
	Rounded func(precision string, difference float64)

	kept *kept
}

// kept holds results that the tests of one case share.
type kept struct {
	plain *outcome
	all   *engine.Result
	trace *trace.Recorder // of all
}

// Names are the names of a method's tensors in a trace.
type Names struct {
	Shared, Private []string
	Broadcast       []string                        // extras that the server sends to all
	PerClient       []string                        // extras that it sends to single clients
	Later           []string                        // extras that it sends to single clients from round 1 on
	Up              []string                        // extras that a client uploads
	Draw            []string                        // random tensors of a step
	TurnDraw        []string                        // of a turn
	MergeDraw       []string                        // of a merge
	Constant        []string                        // of the loss
	Frozen          func(round, epoch int) []string // what the steps of a pass over the data leave as it is
	Exchanged       []string                        // private parameters of which some rows are sent and replaced
	Reads           []string                        // patches, pixels: what a batch holds beside image and label
	Memory          bool                            // whether class scores read the client's own examples
	State           func(round int) []string        // what a client kept before a round
	ServerState     func(round int) []string        // after the merge
	Statistic       *Statistic
}

// Statistic names the tensors of a statistic in a trace.
type Statistic struct {
	Name                 string
	Every                bool // computed in every round, not only before round 0
	Answer               []string
	Broadcast, PerClient []string // sent to everyone, and to single clients
}

// idle lists the parameters that the first pass over the data does not change in later rounds.
func (n Names) idle() []string {
	if n.Frozen == nil {
		return nil
	}
	return n.Frozen(1, 0)
}

// Label names the case among others of the same method.
func (c Case) Label() string {
	b, _ := json.Marshal(methods.ShortOptions(c.Options))
	return strings.Join(append([]string{c.Name}, c.With...), "+") + strings.ReplaceAll(string(b), `"`, "")
}

// Build builds a stack, and stops the test where it cannot.
func Build(t testing.TB, name string, with []string, options map[string]any) method.Method {
	t.Helper()
	m, err := methods.Build(name, with, options)
	goldentest.NoError(t, err)
	return m
}

// experiment returns an experiment with four toy clients, half of them in each round, and most settings of training.
// Its rounds train clients 0 and 1, 1 and 3, and 0 and 3: some state is from the round before, some from earlier.
func (c Case) experiment(t *testing.T) *spec.Experiment {
	t.Helper()
	return &spec.Experiment{Name: "toy", MethodName: c.Label(), Method: Build(t, c.Name, c.With, c.Options),
		Classes: Classes, Template: "a photo of a {}.", Clients: clients(c.Alike, 9, 5, 6, 3),
		Training: spec.Training{Epochs: 2, Batch: 4, DropLast: true,
			Optim:    optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9, WeightDecay: 5e-4},
			Schedule: optim.Schedule{Kind: "cosine", TMax: 10}},
		Plan: spec.Plan{Rounds: 3, Participation: 0.5, TestEvery: 2, Seed: 7}}
}

func run(t *testing.T, experiment *spec.Experiment, set engine.Settings) *engine.Result {
	t.Helper()
	r, err := engine.Run(context.Background(), experiment, set)
	goldentest.NoError(t, err)
	return r
}

// traced is run with a trace.
func traced(t *testing.T, experiment *spec.Experiment, set engine.Settings) (*engine.Result, *trace.Recorder) {
	t.Helper()
	rec := trace.NewRecorder()
	set.Client.Tracer = rec
	return run(t, experiment, set), rec
}

// plain returns the outcome of the case's experiment, which several tests compare with others. It runs once. Nobody may
// change the tensors of its messages.
func (c Case) plain(t *testing.T) outcome {
	t.Helper()
	if c.kept.plain == nil {
		o := outcomeOf(t, run(t, c.experiment(t), engine.Settings{Workers: 1,
			Wrap: func(inner message.Cohort) message.Cohort { return &readOnly{Cohort: inner, t: t} }}))
		c.kept.plain = &o
	}
	return *c.kept.plain
}

// all returns the experiment with two rounds of all clients.
func (c Case) all(t *testing.T) *spec.Experiment {
	t.Helper()
	experiment := c.experiment(t)
	experiment.Plan.Rounds, experiment.Plan.Participation = 2, 1
	return experiment
}

// plainAll returns the result of all, which several tests compare with others, and its trace. It runs once.
func (c Case) plainAll(t *testing.T) (*engine.Result, *trace.Recorder) {
	t.Helper()
	if c.kept.all == nil {
		c.kept.all, c.kept.trace = traced(t, c.all(t), engine.Settings{Workers: 1})
	}
	return c.kept.all, c.kept.trace
}

// outcome is the part of a run's result that must be equal to the last bit in two runs of one experiment: the bytes of
// all prompts, and the records without their times.
type outcome struct{ prompts, rounds string }

func outcomeOf(t *testing.T, r *engine.Result) outcome {
	t.Helper()
	prompts, err := message.EncodeTensors(r.Prompts)
	goldentest.NoError(t, err)

	records := slices.Clone(r.Records)
	for i := range records {
		records[i].Seconds, records[i].Phases = 0, nil
	}

	b, err := json.MarshalIndent(records, "", " ")
	goldentest.NoError(t, err)

	return outcome{string(prompts), string(b)}
}

// outcomeIn reads the outcome of a run from its folder.
func outcomeIn(t *testing.T, dir string) outcome {
	t.Helper()
	prompts, _, err := safetensors.ReadFile(filepath.Join(dir, record.PromptsFile))
	goldentest.NoError(t, err)

	b := filetest.Read(t, filepath.Join(dir, record.RoundsFile))

	var records []record.Record
	for line := range strings.Lines(string(b)) {
		var r record.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		records = append(records, r)
	}

	return outcomeOf(t, &engine.Result{Prompts: prompts, Records: records})
}

func (o outcome) same(t *testing.T, other outcome, what string) {
	t.Helper()
	if o.prompts != other.prompts {
		t.Errorf("%s: the prompts differ", what)
	}
	if o.rounds != other.rounds {
		t.Errorf("%s: the rounds differ\n%s\n%s", what, o.rounds, other.rounds)
	}
}

// Run runs the suite.
func Run(t *testing.T, stack Case) {
	stack.kept = new(kept)
	t.Run("gradients", stack.gradients)
	t.Run("overrides", stack.overrides)
	t.Run("messages", stack.messages)
	t.Run("resume", stack.resume)
	t.Run("trace", stack.trace)
	t.Run("aggregation", stack.Aggregation)
	if stack.Zero != nil {
		t.Run("zero", stack.zero)
	}

	for _, long := range []struct {
		name  string
		check func(*testing.T)
	}{{"terms", stack.terms}, {"device", stack.device}, {"together", stack.together}, {"longer", stack.longer},
		{"lost", stack.lost}, {"lies", stack.lies}} {
		if !stack.Sampled || stack.draw(long.name, 9) == 0 {
			t.Run(long.name, long.check)
		}
	}
}

// draw returns a number below n, which the case and a name decide.
func (c Case) draw(name string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(c.Label() + name))
	return int(h.Sum32()>>1) % n
}

// device: with the graphs of a GPU, runs have the same bytes where values stay on a device (here the CPU) and where
// sizes that come again are fixed. Graphs are not optimised: with known sizes ONNX Runtime fuses other operators, which
// round differently on some processors. Two rounds of one backbone need fewer graphs.
func (c Case) device(t *testing.T) {
	c.Alike = true
	experiment := c.experiment(t)
	experiment.Plan.Rounds = 2
	set := engine.Settings{Workers: 8, Client: client.Settings{DeviceGraphs: true,
		Session: ort.Options{OptLevel: ort.OptNone}}}
	plain := outcomeOf(t, run(t, experiment, set))
	set.Client.Session.Bind = true
	fixed := outcomeOf(t, run(t, experiment, set))
	if orttest.OnCPU() { // a GPU may choose other algorithms
		plain.same(t, fixed, "runs and bound runs of fixed sizes")
	}
}

// bases are the outcomes of base methods with options, which many cases wrap.
var bases sync.Map

// zero: a wrapper with strength 0 does not change its base method.
func (c Case) zero(t *testing.T) {
	bare, idle := c, c
	bare.With, bare.Options = c.With[:len(c.With)-1], nil
	idle.Options = c.Zero
	experiment := bare.experiment(t)
	base, _ := bases.LoadOrStore(fmt.Sprint(bare.Label(), bare.Alike), sync.OnceValues(func() (*engine.Result, error) {
		return engine.Run(context.Background(), experiment, engine.Settings{}) // a failed test inside would panic
	}))
	r, err := base.(func() (*engine.Result, error))()
	goldentest.NoError(t, err)

	outcomeOf(t, r).same(t, outcomeOf(t, run(t, idle.experiment(t), engine.Settings{})),
		"base method and wrapper of no strength")
}
