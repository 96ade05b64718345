package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// evalRows computes a node over all training rows of a client.
func (w *Worker) evalRows(ctx context.Context, client *spec.Client, local *method.Local, state message.ClientState,
	build func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
	p, err := w.compiler.eval(ctx, client.Backbone, local.Task, build)
	if err != nil {
		return nil, err
	}

	if p.byRow {
		return w.scores(ctx, p, local, state, local.Data)
	}

	return w.runOn(ctx, p, local, state, local.Data, tensor.Indices(local.Data.Len()))
}

// scores computes class scores [N,C], or another value [N,...], of all rows of a data set, in parts if rows are large.
func (w *Worker) scores(ctx context.Context, p *plan, local *method.Local, s message.ClientState,
	data method.Data) (*tensor.Tensor, error) {
	size := p.rowsAtOnce()
	if size == 0 || data.Len() <= size {
		return w.runOn(ctx, p, local, s, data, tensor.Indices(data.Len()))
	}
	return w.inChunks(ctx, p, local, s, data, size, false)
}

// inChunks computes a value [N,...] of all rows of a data set, so many rows at a time. With pad, copies of the last row
// fill up the last chunk.
func (w *Worker) inChunks(ctx context.Context, p *plan, local *method.Local, s message.ClientState, data method.Data,
	size int, pad bool) (*tensor.Tensor, error) {
	out := &tensor.Tensor{}
	for rows := range slices.Chunk(tensor.Indices(data.Len()), size) {
		n := len(rows)
		if pad {
			rows = append(slices.Clip(rows), slices.Repeat(rows[n-1:], size-n)...)
		}
		got, err := w.runOn(ctx, p, local, s, data, rows)
		if err != nil {
			return nil, err
		}
		out.Shape = append([]int{data.Len()}, got.Shape[1:]...)
		out.Data = append(out.Data, got.Data[:n*got.Len()/len(rows)]...)
	}

	return out, nil
}

// runOn computes a value over some rows of a data set.
func (w *Worker) runOn(ctx context.Context, plan *plan, local *method.Local, s message.ClientState, data method.Data,
	rows []int) (*tensor.Tensor, error) {
	in := inputsOf(local, s)
	if plan.readsRows() {
		var err error
		before := local.Draws.Count()
		local.Draws.WithoutRecording(func() { in.batch, err = data.Batch(rows, local.Rand, plan.largeInputs...) })
		if err != nil {
			return nil, err
		}

		if local.Draws.Count() > before { // views of images were drawn: the rows show which
			for _, name := range in.batch.Names() {
				local.Draws.Record(fmt.Sprintf("rows/%d/%s", before, name), in.batch[name])
			}
		}

		if err := checkBatch(in.batch, rows); err != nil {
			return nil, err
		}
	}

	out, err := plan.execute(ctx, in)
	if err != nil {
		return nil, err
	}

	return out[0][valueOutput], nil
}

// FixedNodes computes nodes that do not depend on an image.
func (w *Worker) FixedNodes(ctx context.Context, client *spec.Client, local *method.Local, state message.ClientState,
	scope *method.Scope, nodes []graph.Node) ([]*tensor.Tensor, error) {
	if len(nodes) == 0 {
		return nil, nil
	}

	// ONNX Runtime runs no graph without an input, and everything here may be constant.
	one := scope.Input(method.Input{Kind: method.RowInput, Name: "one"}, graph.Float, graph.Static(1))
	out := []graph.Output{{Name: "one again", Node: one}}
	for i, n := range nodes {
		if n.DType() == graph.Bool {
			n = n.Cast(graph.Int64)
		}
		out = append(out, graph.Output{Name: strconv.Itoa(i), Node: n})
	}

	p, err := w.compiler.compile(FixedProgram, client.Backbone, scope, out)
	if err != nil {
		return nil, err
	}

	in := inputsOf(local, state)
	in.batch = tensor.Map{"one": tensor.Of([]float32{1}, 1)}
	values, err := (&plan{program: p}).execute(ctx, in)
	if err != nil {
		return nil, err
	}

	list := make([]*tensor.Tensor, len(nodes))
	for i := range list {
		list[i] = values[0][strconv.Itoa(i)]
	}

	return list, nil
}

// Logits returns the method's class scores with the text and image towers in the graph.
func (w *Worker) Logits(ctx context.Context, client *spec.Client, scope *method.Scope) (graph.Node, error) {
	out, err := w.compiler.allLowered(ctx, client.Backbone, valueOf(w.Experiment.Method.Logits(scope)), nil, nil)
	if err != nil {
		return graph.Node{}, err
	}
	return out[0].Node, nil
}

// scoredTogether is how many rows ScoreRows scores at a time. Kernels use vectors of at most 16 numbers, so that the
// end of so many rows is the end of a vector.
const scoredTogether = 16

// ScoreRows returns class scores [N,C], before softmax, of rows that need not be the client's. The scores of a row do
// not depend on the other rows, nor on their number: the number of rows selects kernels, so all parts have one size,
// and the last part is filled up with copies of the last row.
func (w *Worker) ScoreRows(ctx context.Context, client *spec.Client, local *method.Local, state message.ClientState,
	rows method.Data) (*tensor.Tensor, error) {
	p, err := w.compiler.score(ctx, client.Backbone, local.Task)
	if err != nil {
		return nil, err
	}

	size := scoredTogether
	if most := p.rowsAtOnce(); most > 0 {
		size = min(size, most)
	}

	return w.inChunks(ctx, p, local, state, rows, size, true)
}
