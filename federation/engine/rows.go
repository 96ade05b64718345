package engine

import (
	"context"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
	"slices"
)

// evalRows computes a node over all training rows of a client.
func (w *Worker) evalRows(c *Client, l *method.Local, s State, of func(*method.Scope) graph.Node) (*tensor.Tensor,
	error) {
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
func (w *Worker) run(ctx context.Context, p *program, l *method.Local, s State, data method.Data) (*tensor.Tensor,
	error) {
	return w.runOn(ctx, p, l, s, data, all(data.Len()))
}

// scores computes class scores [N,C], or another value [N,...], of all rows of a data set, in parts where rows are
// large.
func (w *Worker) scores(ctx context.Context, p *program, l *method.Local, s State, data method.Data) (*tensor.Tensor,
	error) {
	if len(p.also) == 0 || data.Len() <= atOnce {
		return w.run(ctx, p, l, s, data)
	}
	out := &tensor.Tensor{}
	for rows := range slices.Chunk(all(data.Len()), atOnce) {
		part, err := w.runOn(ctx, p, l, s, data, rows)
		if err != nil {
			return nil, err
		}
		out.Shape = append([]int{data.Len()}, part.Shape[1:]...)
		out.Data = append(out.Data, part.Data...)
	}
	return out, nil
}

func (w *Worker) runOn(ctx context.Context, p *program, l *method.Local, s State, data method.Data,
	rows []int) (*tensor.Tensor, error) {
	in := inputs{l: l, s: s, now: both(l)}
	var err error
	if p.rows() {
		if in.batch, err = data.Batch(rows, l.Rand, p.also...); err != nil {
			return nil, err
		}
		if err := checkBatch(in.batch, nil); err != nil {
			return nil, err
		}
	}
	if in.fixed, err = w.fixedValues(ctx, p.fixed, in); err != nil {
		return nil, err
	}
	feed, err := in.feed(p, hosts{}, 0)
	if err != nil {
		return nil, err
	}
	out, err := p.session.Run(ctx, feed)
	if err != nil {
		return nil, err
	}
	return out[valueOutput], nil
}
