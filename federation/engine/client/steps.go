package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/optim"
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
	if t.plan.initial == nil {
		return false
	}

	for _, in := range t.plan.initial.prefix.inputs {
		now, sent := t.local.Shared[in.Name], t.local.Received[in.Name]
		if in.Kind == method.ParamInput && (now == nil || sent == nil ||
			now != sent && !slices.Equal(now.Data, sent.Data)) {
			return false
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
	for i, turn := range turns {
		var batch tensor.Map
		var err error
		turn.local.Draws.WithoutRecording(func() {
			batch, err = turn.local.Data.Batch(turn.rows, turn.local.Rand, turn.plan.largeInputs...)
		})

		if err == nil {
			err = checkBatch(batch, turn.rows)
		}

		if err != nil {
			return turn.failed(err)
		}

		ins[i] = inputs{local: turn.local, state: turn.state, now: parameters(turn.local), batch: batch,
			hostValues: turn.hostValues, epoch: turn.epoch,
			held: turn.held}
	}

	p := turns[0].plan
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
		t.forget(ins[i].batch)
	}

	return nil
}

// forget lets the next step use the memory of a batch's large inputs, which are copies that only the step had.
func (t *turn) forget(batch tensor.Map) {
	if _, copies := t.local.Data.(*spec.Features); !copies || t.tr.Enabled() {
		return
	}
	for _, name := range t.plan.largeInputs {
		if x := batch[name]; x != nil {
			x.Release()
		}
	}
}

// update updates the parameters of a turn after the run of a step.
func (w *Worker) update(ctx context.Context, turn *turn, in inputs, out tensor.Map) error {
	local := turn.local
	trained := turn.plan.losses[0]
	grads, err := turn.plan.gradients(in, out, trained)
	local.AuxGradients = map[string]tensor.Map{}
	for _, other := range turn.plan.losses[1:] {
		if err == nil {
			local.AuxGradients[other.name], err = turn.plan.gradients(in, out, other)
		}
	}

	if err == nil {
		err = turn.meter.step(ctx, turn.plan, in, grads)
	}

	traced := turn.traceStep(in, grads)
	local.Frozen = nil // every layer adds what it freezes
	if err == nil {
		err = w.Experiment.Method.AdjustGradients(local, grads)
	}

	if err != nil {
		return err
	}

	for _, name := range local.Frozen {
		delete(grads, name)
	}

	turn.meter.adjusted(grads)
	traced(grads, out[trained.value()])
	sent := tensor.Map{} // parameters as the server sent them, which nobody may change
	for name := range grads {
		if p := local.Shared[name]; p != nil && p == turn.instruction.Shared[name] {
			sent[name], local.Shared[name] = p, tensor.Reuse(p.Shape...)
		}
	}

	now := parameters(local)
	err = turn.opt.StepFrom(sent, now, grads, local.LR, local.Rates)
	loss := float64(out[trained.value()].Data[0])
	if (math.IsNaN(loss) || math.IsInf(loss, 0)) && (err == nil || errors.Is(err, optim.ErrParameter)) {
		err = fmt.Errorf("the loss is %v", loss)
	}

	if err != nil {
		return fmt.Errorf("%w; %s", err, message.DivergenceHint)
	}

	turn.tr.After(local.Steps, now)
	for name := range grads {
		delete(now, name) // the step checked it
	}

	if err := message.CheckFinite("parameter ", now); err != nil {
		return err
	}

	for _, in := range turn.plan.learned {
		out[trained.gradient(in)].Release()
	}

	turn.loss += loss
	local.Steps++
	return nil
}

// parameters returns all parameters that are trained; the tensors are shared.
func parameters(local *method.Local) tensor.Map {
	m := tensor.Map{}
	maps.Copy(m, local.Shared)
	maps.Copy(m, local.Private)
	return m
}

// checkBatch refuses examples that hold NaN or infinities; rows are their numbers in the client's data.
func checkBatch(batch tensor.Map, rows []int) error {
	for _, name := range batch.Names() {
		t := batch[name]
		i := t.NonFinite()
		if i < 0 || len(t.Shape) == 0 {
			continue
		}
		row := i / (t.Len() / t.Shape[0])
		if row < len(rows) {
			row = rows[row]
		}
		return fmt.Errorf("%s of example %d holds %v; remove that example, or the cached features if its file is "+
			"intact", name, row, t.Data[i])
	}

	return nil
}

// termMeter measures the terms of a client's loss at every training step. A nil one does nothing.
type termMeter struct {
	plan  *plan // of compiler.terms
	tr    trace.Client
	steps int
	sum   message.LossTerms
	old   tensor.Map // gradients before AdjustGradients
}

// meter returns a meter for a client's turn; nil if terms are not measured.
func (w *Worker) meter(ctx context.Context, client *spec.Client, task method.ClientSpec,
	tr trace.Client) (*termMeter, error) {
	if !w.Settings.Terms {
		return nil, nil
	}

	p, err := w.compiler.terms(ctx, client.Backbone, task)
	if err != nil {
		return nil, configtags.KeyErrorf("eval.terms", "%w", err)
	}

	return &termMeter{plan: p, tr: tr}, nil
}

// step measures every term on the inputs of a step of p; grads are the gradients of its loss, before AdjustGradients.
func (m *termMeter) step(ctx context.Context, plan *plan, in inputs, grads tensor.Map) error {
	if m == nil {
		return nil
	}

	m.old = grads.Clone()
	outs, err := m.plan.execute(ctx, in)
	if err != nil {
		return configtags.KeyErrorf("eval.terms", "%w", err)
	}

	out := outs[0]
	var fits []tensor.Map
	for _, term := range m.plan.losses {
		value := out[term.value()]
		gradients, err := plan.gradients(in, out, term)
		if err == nil {
			err = message.CheckFinite("term "+term.name+": ", tensor.Map{"loss": value})
		}

		if err == nil {
			err = message.CheckFinite("term "+term.name+": the gradient of ", gradients)
		}

		if err != nil {
			return err
		}

		if method.IsCrossEntropy(term.name) {
			fits = append(fits, gradients)
		}

		m.add(term.name, float64(value.Data[0]), gradients)
		m.tr.Put(fmt.Sprintf("s%d/%s", m.steps, term.value()), value)
	}

	m.sum.CrossEntropy.Add(message.NormsOf(fits...), 1)
	return nil
}

// adjusted ends a step: grads are the gradients after AdjustGradients.
func (m *termMeter) adjusted(grads tensor.Map) {
	if m == nil {
		return
	}

	d := grads.Clone().Axpy(-1, m.old)
	for name, t := range d {
		if t.MaxAbs() == 0 {
			delete(d, name)
		}
	}

	if len(d) > 0 {
		m.add(message.Correction, 0, d)
	}

	m.steps++
}

// add adds the value and the gradient g of a term at one step.
func (m *termMeter) add(name string, value float64, g tensor.Map) {
	m.tr.PutAll(fmt.Sprintf("s%d/%s", m.steps, lossName{termLoss, name}.output("grad")), g)
	m.sum.Add(message.LossTerms{Terms: []message.TermStats{{Name: name, Value: value, Norms: message.NormsOf(g)}}}, 1)
}

func (m *termMeter) mean() *message.LossTerms {
	if m == nil || m.steps == 0 {
		return nil
	}
	out := &message.LossTerms{}
	out.Add(m.sum, 1/float64(m.steps))
	return out
}
