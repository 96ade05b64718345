package client

import (
	"context"
	"slices"
	"strings"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// The clients of a round begin at the same prompts, those that the server sent. In such a step the forward pass of the
// text tower is the same for all: it is a graph of its own, whose values a worker computes once, and a client's own
// graph begins behind it, with its images, its loss and the backward pass. That this is so depends on the client and
// the instruction only, so that a client alone on a machine computes the very same two graphs.

// received compiles a step for shared parameters as the server sent them; nil where no learned prompt depends on them
// alone, or where its values take too much memory.
func (c *compiler) received(b spec.Backbone, s *method.Scope, losses []graph.Output) (*program, error) {
	if c.oneGraph {
		return nil, nil
	}
	same, found := receivedInputs(s), false
	pass := func(prompt *graph.Op) int {
		in := graph.Inputs(prompt.In...)
		switch {
		case slices.ContainsFunc(in, func(n graph.Node) bool { return !same(n.Name()) }):
			return 2
		case slices.ContainsFunc(in, func(n graph.Node) bool { return isParam(n.Name()) }):
			return 1
		}
		return 0 // nothing goes back through it
	}
	for _, op := range graph.Reachable(nodesOf(losses)...) {
		switch op.Placeholder().(type) {
		case method.PromptedImages:
			return nil, nil // beside which the text tower is little
		case method.Prompt:
			found = found || pass(op) == 1
		}
	}
	if !found {
		return nil, nil
	}
	out, err := c.withGradients(b, s, losses, 1, pass)
	if err != nil {
		return nil, err
	}
	rest, fixed := cutAll(nodesOf(out), func(in string) bool { return !same(in) })
	for i, n := range rest {
		if n.Op().IsInput() {
			return nil, nil // a gradient that no image enters
		}
		out[i].Node = n
	}
	for _, part := range fixed {
		if _, ok := part.Node.Shape().Ints(); !ok {
			return nil, nil
		}
	}
	before, err := c.program(b, s, fixed)
	if err != nil || before.bytes > mostReceived/2 {
		return nil, err
	}
	if _, err := before.session(); err != nil {
		return nil, err
	}
	p, err := c.compile(b, s, out)
	if err == nil {
		p.fixed = before
	}
	return p, err
}

func isParam(input string) bool { return strings.HasPrefix(input, method.ParamInput+"/") }

// mostReceived bounds the values of Worker.received, in bytes: those of 101 classes and a text tower of ViT-B/16's size
// have 77 MB.
const mostReceived = 512 << 20

// receivedInputs tells which inputs are the same for all clients of a round as long as shared parameters are as the
// server sent them.
func receivedInputs(s *method.Scope) func(input string) bool {
	common, shared := commonInputs(s), s.SharedNames()
	return func(input string) bool {
		name, ok := strings.CutPrefix(input, method.ParamInput+"/")
		return common(input) || ok && slices.Contains(shared, name)
	}
}

// atReceived tells whether a turn's next step is that of program.received.
func (t *turn) atReceived() bool {
	if t.p.received == nil {
		return false
	}
	for _, in := range t.p.received.fixed.inputs {
		if name, ok := strings.CutPrefix(in, method.ParamInput+"/"); ok {
			a, b := t.l.Shared[name], t.l.Received[name]
			if a == nil || b == nil || !slices.Equal(a.Data, b.Data) {
				return false
			}
		}
	}
	return true
}

// stepAtReceived computes a step of one turn by program.received.
func (w *Worker) stepAtReceived(ctx context.Context, t *turn, in inputs) (f feed, out tensor.Map, err error) {
	if in.fixed, err = w.fixedValues(ctx, w.received, t.p.received.fixed, in); err != nil {
		return f, nil, err
	}
	return t.p.received.inParts(ctx, in, t.host, t.epoch)
}
