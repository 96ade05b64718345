package local

import (
	"context"
	"fmt"
	"math"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// steps is the local training loop.
func (w *Worker) steps(ctx context.Context, p *program, l *method.Local, s message.ClientState, client int,
	shared *sharedOptimizer,
	tr trace.Client,
	m *termMeter) (message.Stats, error) {
	if len(p.params) == 0 {
		return message.Stats{}, nil
	}
	opt, err := optim.New(w.Training.Optim)
	if err == nil {
		err = shared.load(opt, parameters(l))
	}
	if err != nil {
		return message.Stats{}, err
	}
	host := callbackValues{}
	sum := 0.0
	train, most := w.Training.Of(client)
	for epoch := range train.Epochs {
		l.Epoch = epoch
		order := l.Data.Order(l.Rand)
		for _, rows := range train.Batches(order) {
			if most > 0 && l.Steps == most {
				break
			}
			loss, err := w.step(ctx, p, opt, l, s, rows, host, epoch, tr, m)
			if err != nil {
				return message.Stats{}, fmt.Errorf("step %d: %w", l.Steps, err)
			}
			sum += loss
			l.Steps++
		}
	}
	if l.Steps == 0 {
		return message.Stats{}, fmt.Errorf("the data gave no rows in %d epochs", train.Epochs)
	}
	shared.keep(opt, parameters(l))
	return message.Stats{Loss: sum / float64(l.Steps), Steps: l.Steps, Terms: m.mean()}, nil
}

// step is one optimizer step; it gives the loss before it.
func (w *Worker) step(ctx context.Context, p *program, opt *optim.Optimizer, l *method.Local, s message.ClientState,
	rows []int,
	host callbackValues, epoch int,
	tr trace.Client, m *termMeter) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	batch, err := l.Data.Batch(rows, l.Rand, p.also...)
	if err != nil {
		return 0, err
	}
	if err := checkBatch(batch, rows); err != nil {
		return 0, err
	}
	now := parameters(l)
	in := inputs{l: l, s: s, now: now, batch: batch}
	feed, out, err := p.inParts(ctx, in, host, epoch)
	if err != nil {
		return 0, err
	}
	grads, err := gradients(p, in, out, gradOutput, host)
	l.Beside = map[string]tensor.Map{}
	for _, name := range p.beside {
		if err == nil {
			l.Beside[name], err = gradients(p, in, out, besideOutput+name+"/"+gradOutput, host)
		}
	}
	if err == nil {
		err = m.step(ctx, p, in, feed, host, epoch, grads)
	}
	if err == nil {
		err = w.Method.Adjust(l, grads)
	}
	if err != nil {
		return 0, err
	}
	for _, name := range l.Frozen {
		delete(grads, name)
	}
	m.adjusted(grads)
	tr.Step(l.Steps, batch, p.draws(feed), out[lossOutput], grads, l.LR)
	if err := message.CheckFinite("the gradient of ", grads); err != nil {
		return 0, err
	}
	loss := float64(out[lossOutput].Data[0])
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("the loss is %v; %s", loss, message.DivergenceHint)
	}
	if err := opt.Step(now, grads, l.LR); err != nil {
		return 0, fmt.Errorf("%w; %s", err, message.DivergenceHint)
	}
	tr.After(l.Steps, now)
	return loss, message.CheckFinite("parameter ", now)
}

// parameters is one view of all parameters being trained; the tensors are shared.
func parameters(l *method.Local) tensor.Map {
	m := tensor.Map{}
	for _, part := range []tensor.Map{l.Shared, l.Private} {
		for k, t := range part {
			m[k] = t
		}
	}
	return m
}

// checkBatch refuses examples that are no numbers; rows are their numbers in the client's data, nil for all in order.
func checkBatch(batch tensor.Map, rows []int) error {
	for _, name := range batch.Names() {
		t := batch[name]
		i := t.Finite()
		if i < 0 || len(t.Shape) == 0 {
			continue
		}
		row := i / (t.Len() / t.Shape[0])
		if rows != nil && row < len(rows) {
			row = rows[row]
		}
		return fmt.Errorf("%s of example %d holds %v; remove that example, or the cached features if its file is "+
			"sound", name, row, t.Data[i])
	}
	return nil
}
