package client

import (
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
		t.l.Draws.RecordTo(func(name string, v *tensor.Tensor) { t.tr.Put(step+"draw/"+name, v) })
	}
}

// traceBegin records the inputs of the first step: parameters, the tensors that Begin put in place of those that the
// server sent or the client kept, and the graph's named constants.
func (t *turn) traceBegin(sent tensor.Map) {
	if !t.tr.Enabled() {
		return
	}
	t.tr.PutAll("begin", t.l.Shared, t.l.Private)
	for _, in := range t.p.inputs {
		var before *tensor.Tensor
		switch {
		case in.Kind == method.BroadcastInput:
			before = sent[in.Name]
		case in.Kind == method.StateInput:
			before = t.s.Method[in.Name]
		case in != method.LocalClassesInput:
			continue
		}
		now := (inputs{l: t.l}).find(in)
		if now != nil && (before == nil || !slices.Equal(before.Data, now.Data)) {
			t.tr.Put("prepared/"+in.String(), now)
		}
	}
	t.tr.PutAll("constant", t.p.constants)
}

// traceStep records the inputs of a step before AdjustGradients, and returns a function that records the step after it.
func (t *turn) traceStep(in inputs, raw tensor.Map) func(grads tensor.Map, loss *tensor.Tensor) {
	if !t.tr.Enabled() {
		return func(tensor.Map, *tensor.Tensor) {}
	}
	l := t.l
	s := trace.Step{Batch: in.batch, Draws: t.p.draws(in.hosts), Scalars: map[string]float64{}, Raw: raw.Clone()}
	for _, in := range t.p.inputs {
		if in.Kind == method.ScalarInput {
			s.Scalars[in.Name] = l.Scalars[in.Name]
		}
	}
	t.recordDraws(fmt.Sprintf("s%d/", l.Steps))
	return func(grads tensor.Map, loss *tensor.Tensor) {
		s.StepRecord = trace.StepRecord{Step: l.Steps, Epoch: t.epoch, LR: l.LR, Rates: maps.Clone(l.Rates),
			Frozen: slices.Sorted(slices.Values(l.Frozen))}
		s.Loss, s.Grads = loss, l.Optim.Clipped(grads)
		t.tr.Step(s)
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
func (w *Worker) traceTest(c *spec.Client, o message.Instruction, p *plan, l *method.Local, logits *tensor.Tensor,
	read tensor.Map) error {
	tr := trace.NewClient(w.Settings.Tracer, o.Round, c.ID)
	tr.Put("eval/logits", logits)
	tr.PutAll("eval", read)
	tr.Put("eval/label", tensor.OfInts(c.Test.Labels(), c.Test.Len()))
	rows, err := c.Test.Batch(tensor.Indices(c.Test.Len()), l.Rand, p.largeInputs...)
	if err != nil {
		return err
	}
	if l.Draws.Count() > 0 {
		return errors.New("its test draws images at random, which a trace cannot hold")
	}
	for _, name := range append([]string{method.ImageInput}, p.largeInputs...) {
		tr.Put("eval/"+name, rows[name])
	}
	if !spec.UsesMemory(w.Experiment.Method, l.Task) {
		return nil
	}
	m, err := l.Memory()
	if err == nil {
		tr.PutAll("memory", tensor.Map{"image": m[method.ImageInput], "label": m[method.LabelInput]})
	}
	return err
}

// traceStatistic records an answer and the rows that it was computed from. drawn is the number of random numbers that
// it took.
func (w *Worker) traceStatistic(c *spec.Client, o message.Instruction, st message.ClientState, answer tensor.Map,
	drawn int) error {
	l, _ := w.Begin(c, o, st) // the same random numbers again
	rows, err := c.Train.Batch(tensor.Indices(c.Train.Len()), l.Rand)
	if err != nil {
		return err
	}
	if drawn != l.Draws.Count() {
		return fmt.Errorf("it took %d random numbers, and one look at all rows takes %d: the trace lacks some; draw "+
			"the rows once", drawn, l.Draws.Count())
	}
	at := fmt.Sprintf("r%d/statistic/%s/c%d", o.Round, o.Statistic, c.ID)
	trace.TraceAll(w.Settings.Tracer, at, tensor.Map{"image": rows["image"], "label": rows["label"]})
	trace.TraceAll(w.Settings.Tracer, at, answer)
	return nil
}
