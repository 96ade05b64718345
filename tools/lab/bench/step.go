package bench

import (
	"context"
	"fmt"
	"math"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// step is one optimizer step of a client, as a federation runs it: client.Worker trains on one batch of image features
// [32,D].
type step struct {
	of     *spec.Experiment
	worker *client.Worker
	client *spec.Client
	order  message.Instruction
	tokens []int // lengths of the prompts that pass through the tower
	set    *clip.Suffixes
}

// newStep returns a step of a method over some classes. The first run compiles it.
func newStep(t tower, name string, options map[string]any, classes []string, tokens []int, o ort.Options,
	trace trace.Tracer) (*step, error) {
	m, err := methods.Build(name, nil, options)
	if err != nil {
		return nil, err
	}
	set, err := t.suffixes(classes)
	if err != nil {
		return nil, err
	}
	e := &spec.Experiment{Method: m, Classes: classes,
		Training: spec.Training{Epochs: 1, Batch: batch, Optim: optim.Config{Name: "sgd", LR: 0.002, Momentum: 0.9,
			WeightDecay: 5e-4},
			Schedule: optim.Schedule{Kind: "constant"}}}
	e.Plan.Seed = seed
	s := &step{of: e, worker: client.NewWorker(e, client.Settings{Session: o, Tracer: trace, PrefixBytes: -1}),
		tokens: tokens, set: set}
	s.client = &spec.Client{Backbone: t, Train: new(examples).of(t.Task(), 0, "step", inTurn(len(classes)), nil)}
	s.order = message.Instruction{Kind: message.Train, Total: 1, Shared: tensor.Map{}}
	task := t.Task()
	task.Clients, task.Classes = 1, len(classes)
	for _, p := range m.Params(task) {
		if p.Owner == method.Shared {
			s.order.Shared[p.Name] = method.Draw(seed, 0, p.Name, p.Shape, p.Std)
		}
	}
	return s, nil
}

// promptFL returns the step with one prompt.
func promptFL(t tower, classes []string, tokens int, o ort.Options, trace trace.Tracer) (*step, error) {
	return newStep(t, "promptfl", map[string]any{"tokens": tokens}, classes, []int{tokens}, o, trace)
}

// fedPHA returns the step with three prompts, including the projector's singular value decomposition.
func fedPHA(t tower, classes []string, tokens int, o ort.Options) (*step, error) {
	return newStep(t, "fedpha", map[string]any{"global_tokens": tokens, "local_tokens": []int{tokens}},
		classes, []int{tokens, tokens, tokens}, o, nil)
}

// inTurn returns the labels of a batch that cycles through all classes.
func inTurn(classes int) []int64 {
	label := make([]int64, batch)
	for i := range label {
		label[i] = int64(i * classes / batch)
	}
	return label
}

func (s *step) run(ctx context.Context) error {
	_, _, stats, err := s.worker.Train(ctx, s.client, s.order, message.ClientState{})
	if err == nil && stats.Steps != 1 {
		err = fmt.Errorf("a turn of %d steps instead of one", stats.Steps)
	}
	return err
}

func (s *step) close() error { return s.worker.Close() }

// prompts returns placeholder prompts for counting operations.
func (s *step) prompts(width int) []clip.Prompt {
	g := graph.New()
	var out []clip.Prompt
	for i, n := range s.tokens {
		out = append(out, clip.Prompt{Ctx: g.Input(fmt.Sprint(i), graph.Float, graph.Static(n, width))})
	}
	return out
}

// flops returns the number of necessary operations of the step.
func (s *step) flops(t tower) float64 { return t.text.StepFLOPs(s.set, s.prompts(t.text.Width)) }

// rows returns the number of tokens in the linear layers: prefixes, and the suffixes of all classes.
func (s *step) rows() int {
	n := 0
	for _, p := range s.tokens {
		n += 1 + p
		for _, ids := range s.set.IDs {
			n += len(ids)
		}
	}
	return n
}

// gradients returns the gradient of the prompt from one traced run.
func gradients(ctx context.Context, t tower, classes []string, tokens int, o ort.Options) (*tensor.Tensor, error) {
	rec := trace.NewRecorder()
	s, err := promptFL(t, classes, tokens, o, rec)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	return traced(rec)
}

func traced(rec *trace.Recorder) (*tensor.Tensor, error) {
	g := rec.Tensors["r0/c0/s0/grad/ctx"]
	if g == nil {
		return nil, fmt.Errorf("the step gave no gradient of the prompt, but %v", rec.Tensors.Names())
	}
	return g, nil
}

// distance returns the largest difference between two tensors of one shape, divided by the largest magnitude in want.
func distance(got, want *tensor.Tensor) float64 {
	d := 0.0
	for i, v := range want.Data {
		d = max(d, math.Abs(float64(got.Data[i])-float64(v)))
	}
	return d / want.MaxAbs()
}
