package client

import (
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// passOf returns the number of the pass of the text tower that a prompt goes through; nil is one pass for all prompts.
type passOf func(prompt *graph.Op) int

// lower replaces the placeholders of a method's graph. All prompts that do not depend on one another go through the
// text tower in one pass, or in the passes of passOf; chunks, unless nil, divides the classes of a pass.
func lower(backbone spec.Backbone, classes []string, template string, hand func(method.HandTexts) (*tensor.Tensor,
	error), passes passOf, chunks *classChunks, roots []graph.Node) ([]graph.Node, error) {
	for {
		waiting := firstWave(roots)
		if len(waiting) == 0 {
			return roots, nil
		}

		g := roots[0].Graph()
		built := map[*graph.Op]graph.Node{}
		texts := map[int][]*graph.Op{}
		for _, op := range waiting {
			switch placeholder := op.Placeholder().(type) {
			case method.HandTexts:
				t, err := hand(placeholder)
				if err != nil {
					return nil, err
				}
				built[op] = g.Const(t)
			case method.PerExample:
				built[op] = placeholder.X
			case method.PromptedImages:
				n, err := backbone.Vision(g, placeholder.Pixels, placeholder.Prompts)
				if err != nil {
					return nil, fmt.Errorf("backbone %s: %w", backbone.Name(), err)
				}
				built[op] = n
			case method.Prompt:
				pass := 0
				if passes != nil {
					pass = passes(op)
				}
				texts[pass] = append(texts[pass], op)
			case method.Words:
				t, err := backbone.Words(placeholder.Text)
				if err == nil && t.Shape[0] != placeholder.Tokens() {
					err = fmt.Errorf("the words %q of an initial prompt are %d tokens; use words of one token each",
						placeholder.Text, t.Shape[0])
				}
				if err != nil {
					return nil, fmt.Errorf("backbone %s: %w", backbone.Name(), err)
				}
				built[op] = g.Const(t)
			default:
				return nil, fmt.Errorf("%s: unknown placeholder %T", op.Label(), placeholder)
			}
		}

		for _, pass := range slices.Sorted(maps.Keys(texts)) {
			var prompts []method.Prompt
			for _, op := range texts[pass] {
				p := op.Placeholder().(method.Prompt)
				if !p.Ctx.OK() && p.Template == "" {
					p.Template = template
				}
				prompts = append(prompts, p)
			}

			out, err := chunks.text(g, backbone, classes, prompts)
			if err != nil {
				return nil, fmt.Errorf("backbone %s: %w", backbone.Name(), err)
			}

			for i, op := range texts[pass] {
				built[op] = out[i]
			}
		}

		roots = graph.Transform(roots, func(op *graph.Op, _ []graph.Node) []graph.Node {
			if n, ok := built[op]; ok {
				return []graph.Node{n}
			}
			return nil
		})

		if err := g.Err(); err != nil {
			return nil, err
		}
	}
}

// firstWave lists the placeholders that depend on no other placeholder.
func firstWave(roots []graph.Node) []*graph.Op {
	behind := map[*graph.Op]bool{}
	var out []*graph.Op
	for _, op := range graph.Reachable(roots...) {
		placeholder := op.Placeholder() != nil
		blocked := slices.ContainsFunc(op.In, func(n graph.Node) bool { return n.OK() && behind[n.Op()] })
		behind[op] = blocked || placeholder
		if placeholder && !blocked {
			out = append(out, op)
		}
	}

	return out
}

// CheckGraphs returns an error for class scores and losses that a client with a backbone cannot compute, such as those
// of prompts that are longer, with a class name, than the context of the text tower. Nothing is compiled, and no data
// is read.
func CheckGraphs(experiment *spec.Experiment, b spec.Backbone, client, clients int) error {
	_, err := graphsOf(experiment, b, client, clients)
	return err
}

// StepBytes returns the memory of all values together from which a client computes class scores and loss of so many
// rows, without gradients.
func StepBytes(experiment *spec.Experiment, b spec.Backbone, client, clients, rows int) (bytes float64, err error) {
	roots, err := graphsOf(experiment, b, client, clients)
	for _, op := range graph.Reachable(roots...) {
		for _, n := range op.Out {
			size := 4.0
			for _, d := range n.Shape() {
				size *= float64(d.N)
				for range d.Factors() {
					size *= float64(rows)
				}
			}
			bytes += size
		}
	}

	return bytes, err
}

// graphsOf returns the class scores and the loss of a client.
func graphsOf(experiment *spec.Experiment, backbone spec.Backbone, client, clients int) (roots []graph.Node,
	err error) {
	t := spec.TaskOf(backbone, client, clients, len(experiment.Classes))
	scope, scores, loss := method.LossOf(experiment.Method, t)
	if err = scope.Graph().Err(); err == nil {
		hand := func(method.HandTexts) (*tensor.Tensor, error) {
			return tensor.New(len(experiment.Classes), t.Dim), nil
		}
		roots, err = lower(backbone, experiment.Classes, experiment.Template, hand, nil, nil, []graph.Node{scores,
			loss})
	}

	if err != nil {
		return nil, fmt.Errorf("client %d on %s: %w", client, backbone.Name(), err)
	}

	return roots, nil
}

// FixedParts lists the largest parts of a graph that do not depend on the image and are not constants already.
func FixedParts(root graph.Node) []graph.Node {
	return partsWithout([]graph.Node{root}, spec.IsRow)
}

// partsWithout lists the largest parts of graphs that depend on none of some inputs and are not constants already.
func partsWithout(roots []graph.Node, inputs func(method.Input) bool) (out []graph.Node) {
	moving := graph.ReadersOf(func(n graph.Node) bool { return inputs(method.InputOf(n)) }, roots...)
	for _, op := range graph.Reachable(roots...) {
		if !moving[op] {
			continue
		}
		for _, n := range op.In {
			if n.OK() && !moving[n.Op()] && n.Op().Literal() == nil && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}

	return out
}

// Replace returns roots with other nodes in place of some nodes.
func Replace(roots, nodes []graph.Node, with func(i int) graph.Node) []graph.Node {
	return graph.Transform(roots, func(op *graph.Op, _ []graph.Node) []graph.Node {
		out := slices.Clone(op.Out)
		found := false
		for k, n := range op.Out {
			if i := slices.Index(nodes, n); i >= 0 {
				out[k], found = with(i), true
			}
		}
		if !found {
			return nil
		}
		return out
	})
}
