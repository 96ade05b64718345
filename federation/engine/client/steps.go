package client

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// train runs all steps of some turns of one program, one step of each turn at a time. An error in one turn ends all.
func (w *Worker) train(ctx context.Context, turns []*turn) error {
	for len(turns) > 0 {
		var now []*turn
		for _, t := range turns {
			if t.rows = t.next(); t.rows != nil {
				now = append(now, t)
			}
		}
		var whole []*turn
		var groups [][]*turn
		for _, t := range now {
			if t.atInitial() {
				groups = append(groups, []*turn{t})
			} else {
				whole = append(whole, t)
			}
		}
		for _, group := range append(groups, inOneRun(w, whole)...) {
			if err := w.step(ctx, group); err != nil {
				return err
			}
		}
		turns = now
	}
	return nil
}

// atInitial reports whether a turn's next step is that of plan.initial.
func (t *turn) atInitial() bool {
	if t.p.initial == nil {
		return false
	}
	for _, in := range t.p.initial.prefix.inputs {
		if name, ok := strings.CutPrefix(in, method.ParamInput+"/"); ok {
			a, b := t.l.Shared[name], t.l.Received[name]
			if a == nil || b == nil || !slices.Equal(a.Data, b.Data) {
				return false
			}
		}
	}
	return true
}

// step runs one optimizer step of each of some turns, in one run.
func (w *Worker) step(ctx context.Context, turns []*turn) error {
	if err := ctx.Err(); err != nil {
		return turns[0].failed(err)
	}
	ins := make([]inputs, len(turns))
	for i, t := range turns {
		var batch tensor.Map
		var err error
		t.l.Draws.WithoutRecording(func() { batch, err = t.l.Data.Batch(t.rows, t.l.Rand, t.p.largeInputs...) })
		if err == nil {
			err = checkBatch(batch, t.rows)
		}
		if err != nil {
			return t.failed(err)
		}
		ins[i] = inputs{l: t.l, s: t.s, now: parameters(t.l), batch: batch, hostValues: t.hostValues, epoch: t.epoch,
			held: t.held}
	}
	p := turns[0].p
	if turns[0].atInitial() {
		p = p.initial
	}
	outs, err := p.execute(ctx, ins...)
	if err != nil {
		return turns[0].failed(err)
	}
	for i, t := range turns {
		if err := w.update(ctx, t, ins[i], outs[i]); err != nil {
			return t.failed(err)
		}
	}
	return nil
}

// update updates the parameters of a turn after the run of a step.
func (w *Worker) update(ctx context.Context, t *turn, in inputs, out tensor.Map) error {
	l := t.l
	grads, err := gradients(t.p.program, in, out, gradOutput)
	l.AuxGradients = map[string]tensor.Map{}
	for _, name := range t.p.auxLosses {
		if err == nil {
			l.AuxGradients[name], err = gradients(t.p.program, in, out, auxOutput+name+"/"+gradOutput)
		}
	}
	if err == nil {
		err = t.meter.step(ctx, t.p.program, in, grads)
	}
	traced := t.traceStep(in, grads)
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

// parameters returns all parameters that are trained; the tensors are shared.
func parameters(l *method.Local) tensor.Map {
	m := tensor.Map{}
	for _, part := range []tensor.Map{l.Shared, l.Private} {
		for k, t := range part {
			m[k] = t
		}
	}
	return m
}

// checkBatch refuses examples that hold NaN or infinities; rows are their numbers in the client's data, nil for all in
// order.
func checkBatch(batch tensor.Map, rows []int) error {
	for _, name := range batch.Names() {
		t := batch[name]
		i := t.NonFinite()
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
