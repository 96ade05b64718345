package client

import (
	"context"
	"fmt"
	"math"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// train takes all steps of some turns of one program, a step of each at a time. An error in one turn ends all.
func (w *Worker) train(ctx context.Context, turns []*turn) error {
	for len(turns) > 0 {
		var now []*turn
		for _, t := range turns {
			if t.rows = t.next(); t.rows != nil {
				now = append(now, t)
			}
		}
		var rest []*turn
		for _, t := range now {
			if !t.atReceived() {
				rest = append(rest, t)
			} else if err := w.step(ctx, []*turn{t}); err != nil {
				return err
			}
		}
		for len(rest) > 0 {
			n := w.inOneRun(len(rest))
			if err := w.step(ctx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		turns = now
	}
	return nil
}

// step is one optimizer step of each of some turns, in one run.
func (w *Worker) step(ctx context.Context, turns []*turn) error {
	if err := ctx.Err(); err != nil {
		return turns[0].failed(err)
	}
	ins := make([]inputs, len(turns))
	for i, t := range turns {
		var batch tensor.Map
		var err error
		t.l.Draws.Covered(func() { batch, err = t.l.Data.Batch(t.rows, t.l.Rand, t.p.also...) })
		if err == nil {
			err = checkBatch(batch, t.rows)
		}
		if err != nil {
			return t.failed(err)
		}
		ins[i] = inputs{l: t.l, s: t.s, now: parameters(t.l), batch: batch, held: t.held}
	}
	feeds, outs, err := w.runSteps(ctx, turns, ins)
	if err != nil {
		return turns[0].failed(err)
	}
	for i, t := range turns {
		if err := w.update(ctx, t, ins[i], feeds[i], outs[i]); err != nil {
			return t.failed(err)
		}
	}
	return nil
}

// update moves the parameters of a turn after a step was run.
func (w *Worker) update(ctx context.Context, t *turn, in inputs, f feed, out tensor.Map) error {
	l := t.l
	grads, err := gradients(t.p, in, out, gradOutput, t.host)
	l.AuxGradients = map[string]tensor.Map{}
	for _, name := range t.p.beside {
		if err == nil {
			l.AuxGradients[name], err = gradients(t.p, in, out, besideOutput+name+"/"+gradOutput, t.host)
		}
	}
	if err == nil {
		err = t.meter.step(ctx, t.p, in, f, t.host, t.epoch, grads)
	}
	traced := t.traceStep(in, f, grads)
	if err == nil {
		err = w.Method.AdjustGradients(l, grads)
	}
	if err != nil {
		return err
	}
	for _, name := range l.Frozen {
		delete(grads, name)
	}
	t.meter.adjusted(grads)
	traced(grads, out[lossOutput])
	if err := message.CheckFinite("the gradient of ", grads); err != nil {
		return err
	}
	loss := float64(out[lossOutput].Data[0])
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("the loss is %v; %s", loss, message.DivergenceHint)
	}
	if err := t.opt.StepAt(in.now, grads, l.LR, l.Rates); err != nil {
		return fmt.Errorf("%w; %s", err, message.DivergenceHint)
	}
	t.tr.After(l.Steps, in.now)
	if err := message.CheckFinite("parameter ", in.now); err != nil {
		return err
	}
	t.loss += loss
	l.Steps++
	return nil
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
			"intact", name, row, t.Data[i])
	}
	return nil
}
