package client

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// evalRows computes a node over all training rows of a client.
func (w *Worker) evalRows(c *spec.Client, l *method.Local, s message.ClientState,
	of func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
	p, err := w.c.eval(c.Backbone, l.Task, of)
	if err != nil {
		return nil, err
	}
	if p.byRow {
		return w.scores(context.Background(), p, l, s, l.Data)
	}
	return w.run(context.Background(), p, l, s, l.Data)
}

// run computes a program's value over all rows of a data set.
func (w *Worker) run(ctx context.Context, p *program, l *method.Local, s message.ClientState,
	data method.Data) (*tensor.Tensor, error) {
	return w.runOn(ctx, p, l, s, data, message.Indices(data.Len()))
}

// scores computes class scores [N,C], or another value [N,...], of all rows of a data set, in parts where rows are
// large.
func (w *Worker) scores(ctx context.Context, p *program, l *method.Local, s message.ClientState,
	data method.Data) (*tensor.Tensor, error) {
	most := p.atOnce()
	if most == 0 || data.Len() <= most {
		return w.run(ctx, p, l, s, data)
	}
	out := &tensor.Tensor{}
	for rows := range slices.Chunk(message.Indices(data.Len()), most) {
		part, err := w.runOn(ctx, p, l, s, data, rows)
		if err != nil {
			return nil, err
		}
		out.Shape = append([]int{data.Len()}, part.Shape[1:]...)
		out.Data = append(out.Data, part.Data...)
	}
	return out, nil
}

func (w *Worker) runOn(ctx context.Context, p *program, l *method.Local, s message.ClientState, data method.Data,
	rows []int) (*tensor.Tensor, error) {
	in := inputs{l: l, s: s, now: parameters(l)}
	var err error
	if p.rows() {
		before := l.Draws.Taken()
		l.Draws.Covered(func() { in.batch, err = data.Batch(rows, l.Rand, p.also...) })
		if err != nil {
			return nil, err
		}
		if l.Draws.Taken() > before { // views of images: the rows tell which
			for _, name := range in.batch.Names() {
				l.Draws.Record(fmt.Sprintf("rows/%d/%s", before, name), in.batch[name])
			}
		}
		if err := checkBatch(in.batch, nil); err != nil {
			return nil, err
		}
	}
	if in.fixed, err = w.fixedValues(ctx, w.computed, p.fixed, in); err != nil {
		return nil, err
	}
	feed, err := in.feed(p, callbackValues{}, 0)
	if err != nil {
		return nil, err
	}
	out, err := p.run(ctx, feed)
	if err != nil {
		return nil, err
	}
	return out[valueOutput], nil
}

// FixedNodes computes nodes that do not depend on an image, as valueName names them.
func (w *Worker) FixedNodes(ctx context.Context, c *spec.Client, l *method.Local, s message.ClientState,
	scope *method.Scope, nodes []graph.Node) (tensor.Map, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	// ONNX Runtime runs no graph without an input, and everything here may be constant.
	one := scope.Graph().Input("one", graph.Float, graph.Static(1))
	out := []graph.Output{{Name: "one again", Node: one}}
	for i, n := range nodes {
		if n.DType() == graph.Bool {
			n = n.Cast(graph.Int64)
		}
		out = append(out, graph.Output{Name: ValueName(i), Node: n})
	}
	p, err := w.c.compile(c.Backbone, scope, out)
	if err != nil {
		return nil, err
	}
	batch := tensor.Map{"one": tensor.Of([]float32{1}, 1)}
	feed, err := inputs{l: l, s: s, now: parameters(l), batch: batch}.feed(p, callbackValues{}, 0)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, feed)
}

// Logits are the method's class scores with the text and image towers in the graph.
func (w *Worker) Logits(c *spec.Client, scope *method.Scope) (graph.Node, error) {
	return w.c.lowered(c.Backbone, w.Method.Logits(scope))
}

// scoredTogether is how many rows ScoreRows scores at a time. Vectors of kernels, which are of 16 numbers at most, end
// where the rows of so many end.
const scoredTogether = 16

// ScoreRows gives class scores [N,C], before softmax, of rows that need not be the client's. Those of a row do not
// depend on the other rows, nor on how many there are: kernels are chosen by the number of rows, so they go in parts of
// one size, and the last row stands in for what the last part lacks.
func (w *Worker) ScoreRows(ctx context.Context, c *spec.Client, l *method.Local, s message.ClientState,
	rows method.Data) (*tensor.Tensor, error) {
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil {
		return nil, err
	}
	size := scoredTogether
	if most := p.atOnce(); most > 0 {
		size = min(size, most)
	}
	out := &tensor.Tensor{}
	for part := range slices.Chunk(message.Indices(rows.Len()), size) {
		n, last := len(part), part[len(part)-1]
		got, err := w.runOn(ctx, p, l, s, rows, append(slices.Clip(part), slices.Repeat([]int{last}, size-n)...))
		if err != nil {
			return nil, err
		}
		out.Shape = append([]int{rows.Len()}, got.Shape[1:]...)
		out.Data = append(out.Data, got.Data[:n*got.Len()/size]...)
	}
	return out, nil
}

// inParts runs a step's graph on as many rows of a batch at a time as it may, and gives its last inputs and the mean of
// its outputs, each part counting by its rows. That is the output for the whole batch where a loss is a mean over rows,
// or depends on none, as the loss of a method with prompts for each image must be.
func (p *program) inParts(ctx context.Context, in inputs, host callbackValues, epoch int) (f feed, out tensor.Map,
	err error) {
	rows := in.batch[method.LabelInput].Shape[0]
	most := spec.MicrobatchSize(rows, p.most)
	whole := in.batch
	for from := 0; from < rows; from += most {
		to := min(rows, from+most)
		if to-from < rows {
			in.batch = rowsOf(whole, rows, from, to)
		}
		if f, err = in.feed(p, host, epoch); err != nil {
			return f, nil, err
		}
		part, err := p.run(ctx, f)
		if err != nil {
			return f, nil, err
		}
		switch {
		case to-from == rows:
			out = part
		case out == nil:
			out = part.Scale(float64(to-from) / float64(rows))
		default:
			out.Axpy(float64(to-from)/float64(rows), part)
		}
	}
	return f, out, nil
}

// rowsOf are the rows from..to of a batch; what has not as many rows stays whole.
func rowsOf(batch tensor.Map, rows, from, to int) tensor.Map {
	index := message.Indices(rows)[from:to]
	out := tensor.Map{}
	for name, t := range batch {
		if len(t.Shape) > 0 && t.Shape[0] == rows {
			t = t.Rows(index)
		}
		out[name] = t
	}
	return out
}

// rowsPerRun is how many rows with patches or pixels are scored at a time.
const rowsPerRun = 64

// atOnce is how many rows of a data set are scored at a time; 0 is all.
func (p *program) atOnce() int {
	switch {
	case len(p.also) == 0:
		return p.most
	case p.most == 0:
		return rowsPerRun
	}
	return min(rowsPerRun, p.most)
}
