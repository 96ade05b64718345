package bench

import (
	"context"
	"fmt"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/projection"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

const (
	batch     = 32 // images in a step
	tokens    = 16 // length of each prompt
	promptStd = 0.02
)

// step is one optimizer step of a client, as a federation runs it: client.Worker trains on one batch of image features
// [32,D].
type step struct {
	contestant
	experiment *spec.Experiment
	worker     *client.Worker
	client     *spec.Client
	order      message.Instruction
	state      message.ClientState
	prompts    []*tensor.Tensor // shared ones, then private ones
	set        *clip.Suffixes
	rows       int // tokens in the linear layers: prefixes, and the suffixes of all classes
}

// newStep returns a step of a method over some classes, with so many prompts that pass through the tower. The first run
// compiles it.
func newStep(tower *tower, name string, options map[string]any, classes []string, prompts int, session ort.Options,
	trace trace.Tracer) (*step, error) {
	set, err := tower.suffixes(classes)
	if err != nil {
		return &step{}, err
	}

	experiment, err := protocol{method: name, options: options, classes: classes, batch: batch}.describe()
	if err != nil {
		return &step{}, err
	}

	step := &step{experiment: experiment, worker: client.NewWorker(experiment,
		client.Settings{Session: session, Tracer: trace, PrefixBytes: -1}),
		set: set, order: message.Instruction{Kind: message.Train, Total: 1, Shared: tensor.Map{}}}
	step.client = &spec.Client{Backbone: tower, Train: examples{}.of(tower.Task(), 0, "step", inTurn(len(classes)),
		experiment.Reads(tower))}
	task := tower.Task()
	task.Clients, task.Classes = 1, len(classes)
	step.state.Private = tensor.Map{}
	for _, p := range experiment.Method.Params(task) {
		to := step.order.Shared
		if p.Owner == method.Private {
			to = step.state.Private
		}
		to[p.Name] = method.Draw(seed, 0, p.Name, p.Shape, p.Std)
		step.prompts = append(step.prompts, to[p.Name])
	}

	g, placeholders := graph.New(), []clip.Prompt(nil) // to count operations
	for i := range prompts {
		in := g.Input(fmt.Sprint(i), graph.Float, graph.Static(tokens, task.Width))
		placeholders = append(placeholders, clip.Prompt{Ctx: in})
		step.rows += 1 + tokens
		for _, ids := range set.IDs {
			step.rows += len(ids)
		}
	}

	step.contestant = contestant{what: "step of " + name, run: step.train, flops: tower.text().StepFLOPs(set,
		placeholders)}
	return step, nil
}

// promptFL returns the step with one prompt.
func promptFL(t *tower, classes []string, o ort.Options, trace trace.Tracer) (*step, error) {
	return newStep(t, "promptfl", map[string]any{"tokens": tokens}, classes, 1, o, trace)
}

// fedVPT returns the step with one prompt of the image tower.
func fedVPT(t *tower, classes []string, o ort.Options, trace trace.Tracer) (*step, error) {
	return newStep(t, "fedvpt", map[string]any{"vision_tokens": tokens}, classes, 0, o, trace)
}

// removed is the share of directions that FedPHA's projector removes.
const removed = 0.8

// fedPHA returns the step with three prompts, including the projector's singular value decomposition.
func fedPHA(t *tower, classes []string, o ort.Options, trace trace.Tracer) (*step, error) {
	return newStep(t, "fedpha", map[string]any{"global_tokens": tokens, "local_tokens": []int{tokens},
		"projector": projection.Eq9, "ratio": removed}, classes, 3, o, trace)
}

// inTurn returns the labels of a batch that cycles through all classes.
func inTurn(classes int) []int64 {
	label := make([]int64, batch)
	for i := range label {
		label[i] = int64(i * classes / batch)
	}
	return label
}

func (s *step) train(ctx context.Context) error {
	r, _, err := s.worker.Train(ctx, s.client, s.order, s.state)
	if err == nil && r.Stats.Steps != 1 {
		err = fmt.Errorf("a turn of %d steps instead of one", r.Stats.Steps)
	}
	return err
}

func (s *step) close() error { return s.worker.Close() }

// stepOf makes a step over some classes.
type stepOf func(t *tower, classes []string, o ort.Options, trace trace.Tracer) (*step, error)

// gradient returns the gradients of all prompts, which have one shape, from one traced run of a step.
func gradient(ctx context.Context, makeStep stepOf, t *tower, classes []string, o ort.Options) (*tensor.Tensor, error) {
	rec := trace.NewRecorder()
	step, err := makeStep(t, classes, o, rec)
	if err != nil {
		return nil, err
	}
	defer step.close()

	if err := step.run(ctx); err != nil {
		return nil, err
	}

	var all []*tensor.Tensor
	for _, name := range append(step.order.Shared.Names(), step.state.Private.Names()...) {
		g := rec.Tensors["r0/c0/s0/grad/"+name]
		if g == nil {
			return nil, fmt.Errorf("the step gave no gradient of %s, but %v", name, rec.Tensors.Names())
		}
		all = append(all, g)
	}

	return tensor.Stack(all), nil
}

// distance returns the largest difference between two tensors of one shape, divided by the largest magnitude in want.
func distance(got, want *tensor.Tensor) float64 {
	return tensor.Distance(got, want) / want.MaxAbs()
}
