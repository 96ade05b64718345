package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// recordDraws records the method's random numbers from now on, under the name of a step or of the turn.
func (t *turn) recordDraws(step string) {
	if t.tr.Enabled() {
		t.local.Draws.RecordTo(func(name string, v *tensor.Tensor) { t.tr.Put(step+"draw/"+name, v) })
	}
}

// traceBegin records the inputs of the first step: parameters, the tensors that Begin put in place of those that the
// server sent or the client kept, and the graph's named constants.
func (t *turn) traceBegin(sent tensor.Map) {
	if !t.tr.Enabled() {
		return
	}

	t.tr.PutAll("begin", t.local.Shared, t.local.Private)
	for _, in := range t.plan.inputs {
		var before *tensor.Tensor
		switch {
		case in.Kind == method.BroadcastInput:
			before = sent[in.Name]
		case in.Kind == method.StateInput:
			before = t.state.Method[in.Name]
		case in != method.LocalClassesInput:
			continue
		}
		now := (inputs{local: t.local}).find(in)
		if now != nil && (before == nil || !slices.Equal(before.Data, now.Data)) {
			t.tr.Put("prepared/"+in.String(), now)
		}
	}

	t.tr.PutAll("constant", t.plan.constants)
}

// traceStep records the inputs of a step before AdjustGradients, and returns a function that records the step after it.
func (t *turn) traceStep(in inputs, raw tensor.Map) func(grads tensor.Map, loss *tensor.Tensor) {
	if !t.tr.Enabled() {
		return func(tensor.Map, *tensor.Tensor) {}
	}

	local := t.local
	step := trace.Step{Batch: in.batch, Draws: t.plan.draws(in.hosts), Scalars: map[string]float64{}, Raw: raw.Clone()}
	for _, in := range t.plan.inputs {
		if in.Kind == method.ScalarInput {
			step.Scalars[in.Name] = local.Scalars[in.Name]
		}
	}

	t.recordDraws(fmt.Sprintf("s%d/", local.Steps))
	return func(grads tensor.Map, loss *tensor.Tensor) {
		step.StepRecord = trace.StepRecord{Step: local.Steps, Epoch: t.epoch, LR: local.LR,
			Rates: maps.Clone(local.Rates), Frozen: slices.Compact(slices.Sorted(slices.Values(local.Frozen)))}
		step.Loss, step.Grads = loss, local.Optim.Clipped(grads)
		t.tr.Step(step)
	}
}

// valuesWithoutRows returns the inputs of a plan that are no rows of data, by their names in the graph.
func (p *plan) valuesWithoutRows(in inputs) tensor.Map {
	out := tensor.Map{}
	for _, q := range p.programs() {
		for _, source := range q.inputs {
			if t := in.find(source); t != nil && !spec.IsRow(source) {
				out[source.String()] = t
			}
		}
	}

	return out
}

// traceTest records a test: class scores [N,C], the inputs of the scores that are no rows of data, and the rows.
func (w *Worker) traceTest(client *spec.Client, instruction message.Instruction, plan *plan, local *method.Local,
	logits *tensor.Tensor, read tensor.Map) error {
	tr := trace.NewClient(w.Settings.Tracer, instruction.Round, client.ID)
	tr.Put("eval/logits", logits)
	tr.PutAll("eval", read)
	tr.Put("eval/label", tensor.OfInts(client.Test.Labels(), client.Test.Len()))
	rows, err := client.Test.Batch(tensor.Indices(client.Test.Len()), local.Rand, plan.largeInputs...)
	if err != nil {
		return err
	}

	if local.Draws.Count() > 0 {
		return errors.New("its test draws images at random, which a trace cannot hold")
	}

	for _, name := range append([]string{method.ImageInput}, plan.largeInputs...) {
		tr.Put("eval/"+name, rows[name])
	}

	if !spec.UsesMemory(w.Experiment.Method, local.Task) {
		return nil
	}

	m, err := local.Memory()
	if err == nil {
		tr.PutAll("memory", m)
	}

	return err
}

// traceStatistic records an answer and the rows that it was computed from. drawn is the number of random numbers that
// it took.
func (w *Worker) traceStatistic(ctx context.Context, client *spec.Client, instruction message.Instruction,
	st message.ClientState, answer tensor.Map, drawn int) error {
	local, _ := w.Begin(ctx, client, instruction, st) // the same random numbers again
	rows, err := client.Train.Batch(tensor.Indices(client.Train.Len()), local.Rand)
	if err != nil {
		return err
	}

	if drawn != local.Draws.Count() {
		return fmt.Errorf("it took %d random numbers, and one look at all rows takes %d: the trace lacks some; draw "+
			"the rows once", drawn, local.Draws.Count())
	}

	at := fmt.Sprintf("r%d/statistic/%s/c%d", instruction.Round, instruction.Statistic, client.ID)
	trace.TraceAll(w.Settings.Tracer, at, rows)
	trace.TraceAll(w.Settings.Tracer, at, answer)
	return nil
}
