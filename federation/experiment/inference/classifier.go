package inference

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// ClassifierGraph returns the class scores [B,C] of a client's classifier, before softmax, in a graph whose only inputs
// depend on an image: "image" [B,D], unit rows, and other inputs of images that the method's Logits reads. All other
// values are computed now and are constants, so the text tower is not in the graph. clients is how many there were.
func ClassifierGraph(ctx context.Context, worker *client.Worker, site *spec.Client, clients int,
	prompts tensor.Map) (graph.Node, error) {
	scoreGraph, err := scoresOf(ctx, worker, site, clients, prompts)
	if err != nil {
		return graph.Node{}, err
	}

	if err := exportable(scoreGraph.scope, scoreGraph.scores); err != nil {
		return scoreGraph.scores, err
	}

	fixed := client.FixedParts(scoreGraph.scores)
	values, err := worker.FixedNodes(ctx, site, scoreGraph.local, scoreGraph.state, scoreGraph.scope, fixed)
	if err != nil {
		return scoreGraph.scores, err
	}

	return client.Replace([]graph.Node{scoreGraph.scores}, fixed, func(i int) graph.Node {
		return scoreGraph.scores.Graph().Const(values[i]).Cast(fixed[i].DType())
	})[0], scoreGraph.scores.Graph().Err()
}

// scoreGraph is the graph of a client's class scores, with the towers in it.
type scoreGraph struct {
	local  *method.Local
	state  message.ClientState
	scope  *method.Scope
	scores graph.Node
}

func scoresOf(ctx context.Context, w *client.Worker, site *spec.Client, clients int,
	prompts tensor.Map) (g scoreGraph, err error) {
	if g.local, g.state, err = learned(ctx, w, site, clients, prompts); err != nil {
		return g, err
	}
	g.scope = method.ScopeOf(w.Experiment.Method, g.local.Task)
	g.scores, err = w.Logits(ctx, site, g.scope)
	return g, err
}

// exportable refuses scores that need more than an image and what was learned.
func exportable(scope *method.Scope, scores graph.Node) error {
	read := method.Inputs(scores)
	if slices.Contains(read, method.Input{Kind: method.RowInput, Name: method.LabelInput}) {
		return fmt.Errorf("the method's class scores depend on the label, which a classifier does not have")
	}

	for _, h := range scope.Built().Hosts {
		if i := slices.IndexFunc(h.Args, spec.IsRow); i >= 0 && slices.Contains(read, h.Input()) {
			return fmt.Errorf("this method cannot be exported: host function %s computes on %s of every image, "+
				"outside of the graph", h.Name, h.Args[i])
		}
	}

	if !slices.ContainsFunc(read, spec.IsRow) {
		return fmt.Errorf("the method's class scores do not depend on the image")
	}

	return nil
}

// TextFeatures returns the class features [C,D], unit rows, that a client's class scores compare images with: the
// largest part of the scores of that shape that depends on no image. prompts are those of PromptsFile, or of
// InitialParams. A method that compares images with something else is an error.
func TextFeatures(ctx context.Context, worker *client.Worker, site *spec.Client, clients int,
	prompts tensor.Map) (*tensor.Tensor, error) {
	scoreGraph, err := scoresOf(ctx, worker, site, clients, prompts)
	if err != nil {
		return nil, err
	}

	task := scoreGraph.local.Task
	for _, part := range client.FixedParts(scoreGraph.scores) {
		shape, ok := part.Shape().Ints()
		switch {
		case !ok || len(shape) != 2 || part.DType() != graph.Float:
			continue
		case shape[0] == task.Dim && shape[1] == task.Classes:
			part = part.Transpose(1, 0)
		case shape[0] != task.Classes || shape[1] != task.Dim:
			continue
		}

		got, err := worker.FixedNodes(ctx, site, scoreGraph.local, scoreGraph.state, scoreGraph.scope,
			[]graph.Node{part.L2Normalize()})
		if err != nil {
			return nil, err
		}

		return got[0], nil
	}

	return nil, fmt.Errorf("the method's class scores do not compare images with class features [%d,%d]",
		task.Classes, task.Dim)
}

// Predict returns class scores [N,C], before softmax, of rows for a client's parameters. clients is the number of
// clients.
func Predict(ctx context.Context, w *client.Worker, site *spec.Client, clients int, prompts tensor.Map,
	rows method.Data) (*tensor.Tensor, error) {
	local, s, err := learned(ctx, w, site, clients, prompts)
	if err != nil {
		return nil, err
	}
	return w.ScoreRows(ctx, site, local, s, rows)
}

// Accuracy returns a client's accuracy in a round, tested with the parameters that its method's paper tests, as Predict
// uses them. False if the round does not have it.
func Accuracy(w *client.Worker, site *spec.Client, clients int, r record.Record) (float64, bool) {
	m := w.Experiment.Method
	e := r.Evaluations.Of(record.EvaluableOf(m, w.Task(site, clients)).Headline(record.MethodView, m))
	at := site.ID
	if len(r.Answered) > 0 {
		at = slices.Index(r.Answered, site.ID)
	}

	if e == nil || at < 0 || at >= len(e.PerClient) {
		return 0, false
	}

	return e.PerClient[at], true
}

// learned returns a client with the parameters that it is tested with.
func learned(ctx context.Context, worker *client.Worker, site *spec.Client, clients int,
	prompts tensor.Map) (*method.Local, message.ClientState, error) {
	shared, clientState := state.ClientParams(prompts, site.ID)
	for _, param := range worker.Experiment.Method.Params(worker.Task(site, clients)) {
		t := shared[param.Name]
		if param.Owner == method.Private {
			t = clientState.Private[param.Name]
		}
		switch {
		case t == nil && param.Owner == method.Private:
			return nil, clientState, fmt.Errorf("client %d has no private parameter %s, since it never trained "+
				"(eval.new_clients, or no round selected it); choose another client", site.ID, param.Name)
		case t == nil:
			return nil, clientState,
				fmt.Errorf("the run has no shared parameter %s for client %d; it was made by another method",
					param.Name, site.ID)
		}
	}

	local, clientState := worker.Begin(ctx, site, message.Instruction{Kind: message.Test, Total: clients,
		Shared: shared, Broadcast: prompts.WithoutPrefix(state.DownFolder + "/" + strconv.Itoa(site.ID))}, clientState)
	if worker.Experiment.Method.View() == method.PersonalView && len(clientState.Own) > 0 {
		local.Shared = clientState.Own.Clone()
	}

	return local, clientState, nil
}
