package client

import (
	"context"
	"fmt"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// termMeter measures the terms of a client's loss at every training step. A nil one does nothing.
type termMeter struct {
	p     *plan // of compiler.terms
	tr    trace.Client
	steps int
	sum   message.LossTerms
	old   tensor.Map // gradients before AdjustGradients
}

// meter returns a meter for a client's turn; nil if terms are not measured.
func (w *Worker) meter(c *spec.Client, task method.ClientSpec, tr trace.Client) (*termMeter, error) {
	if !w.Terms {
		return nil, nil
	}
	p, err := w.c.terms(c.Backbone, task)
	if err != nil {
		return nil, fmt.Errorf("eval.terms: %w", err)
	}
	return &termMeter{p: p, tr: tr}, nil
}

// step measures every term on the inputs of a step of p; grads are the gradients of its loss, before AdjustGradients.
func (m *termMeter) step(ctx context.Context, p *program, in inputs, grads tensor.Map) error {
	if m == nil {
		return nil
	}
	m.old = grads.Clone()
	outs, err := m.p.execute(ctx, in)
	if err != nil {
		return fmt.Errorf("eval.terms: %w", err)
	}
	out := outs[0]
	var fits []tensor.Map
	for _, name := range m.p.terms {
		at := termOutput + name + "/"
		g, err := gradients(p, in, out, at+gradOutput)
		if err == nil {
			err = message.CheckFinite("term "+name+": ", tensor.Map{lossOutput: out[at+lossOutput]})
		}
		if err == nil {
			err = message.CheckFinite("term "+name+": the gradient of ", g)
		}
		if err != nil {
			return err
		}
		if method.IsCrossEntropy(name) {
			fits = append(fits, g)
		}
		m.add(name, float64(out[at+lossOutput].Data[0]), g)
		m.tr.Put(fmt.Sprintf("s%d/%s%s", m.steps, at, lossOutput), out[at+lossOutput])
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
	m.tr.PutAll(fmt.Sprintf("s%d/%s%s/%s", m.steps, termOutput, name, strings.TrimSuffix(gradOutput, "/")), g)
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
