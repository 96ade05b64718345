package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// LossTerms is what one client measured of the terms of its loss: means over its steps, each taken before the step's
// update.
type LossTerms struct {
	// CrossEntropy are the lengths of the gradient of all terms together that fit labels.
	CrossEntropy Norms
	Terms        []TermStats
}

// TermStats is one term.
type TermStats struct {
	Name  string
	Value float64 // as it enters the loss; 0 of Correction
	Norms         // of its own gradient
}

// Norms are Euclidean lengths of a gradient.
type Norms struct {
	All float64            // on all parameters together
	On  map[string]float64 // on each that it reaches, by name
}

// Correction is the name of what a method's Adjust adds to the gradients of the loss, which is no term of it.
const Correction = "correction"

// add adds a times other lengths.
func (n *Norms) add(m Norms, a float64) {
	n.All += a * m.All
	if n.On == nil {
		n.On = map[string]float64{}
	}
	for name, v := range m.On {
		n.On[name] += a * v
	}
}

// add adds a times other measurements, term by term.
func (t *LossTerms) add(more LossTerms, a float64) {
	t.CrossEntropy.add(more.CrossEntropy, a)
	for _, m := range more.Terms {
		i := slices.IndexFunc(t.Terms, func(s TermStats) bool { return s.Name == m.Name })
		if i < 0 {
			i = len(t.Terms)
			t.Terms = append(t.Terms, TermStats{Name: m.Name})
		}
		t.Terms[i].Value += a * m.Value
		t.Terms[i].Norms.add(m.Norms, a)
	}
}

// normsOf measures the sum of some gradients, in float64.
func normsOf(grads ...tensor.Map) Norms {
	out, all := Norms{On: map[string]float64{}}, 0.0
	for _, first := range grads {
		for _, name := range first.Names() {
			if _, done := out.On[name]; done {
				continue
			}
			square := 0.0
			for i := range first[name].Data {
				sum := 0.0
				for _, g := range grads {
					if g[name] != nil {
						sum += float64(g[name].Data[i])
					}
				}
				square += sum * sum
			}
			out.On[name] = math.Sqrt(square)
			all += square
		}
	}
	out.All = math.Sqrt(all)
	return out
}

// termMeter measures the terms of a client's loss, step by step, beside the step that trains. A nil one does nothing.
type termMeter struct {
	p     *program // of compiler.terms
	tr    tracer
	steps int
	sum   LossTerms
	old   tensor.Map // gradients before Adjust
}

// meter starts to measure a client's turn, where that is wanted.
func (w *Worker) meter(c *Client, task method.Task, tr tracer) (*termMeter, error) {
	if !w.Terms {
		return nil, nil
	}
	p, err := w.c.terms(c.Backbone, task)
	if err != nil {
		return nil, fmt.Errorf("eval.terms: %w", err)
	}
	return &termMeter{p: p, tr: tr}, nil
}

// step measures every term on the inputs of a step of p; grads are the gradients of its loss, before Adjust.
func (m *termMeter) step(ctx context.Context, p *program, in inputs, feed tensor.Map, host hosts, epoch int,
	grads tensor.Map) error {
	if m == nil {
		return nil
	}
	m.old = grads.Clone()
	var out tensor.Map
	var err error
	if m.p.most > 0 {
		_, out, err = m.p.inParts(ctx, in, host, epoch)
	} else {
		own := tensor.Map{}
		for _, name := range m.p.inputs {
			own[name] = feed[name]
		}
		out, err = m.p.session.Run(ctx, own)
	}
	if err != nil {
		return fmt.Errorf("eval.terms: %w", err)
	}
	var fits []tensor.Map
	for _, name := range m.p.terms {
		at := termOutput + name + "/"
		g, err := gradients(p, in, out, at+gradOutput, host)
		if err == nil {
			err = finite("term "+name+": ", tensor.Map{lossOutput: out[at+lossOutput]})
		}
		if err == nil {
			err = finite("term "+name+": the gradient of ", g)
		}
		if err != nil {
			return err
		}
		if method.IsCrossEntropy(name) {
			fits = append(fits, g)
		}
		m.add(name, float64(out[at+lossOutput].Data[0]), g)
		m.tr.put(fmt.Sprintf("s%d/%s%s", m.steps, at, lossOutput), out[at+lossOutput])
	}
	m.sum.CrossEntropy.add(normsOf(fits...), 1)
	return nil
}

// adjusted ends a step: grads are the gradients after Adjust.
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
		m.add(Correction, 0, d)
	}
	m.steps++
}

// add adds what a step has of a term with gradient g.
func (m *termMeter) add(name string, value float64, g tensor.Map) {
	m.tr.putAll(fmt.Sprintf("s%d/%s%s/%s", m.steps, termOutput, name, strings.TrimSuffix(gradOutput, "/")), g)
	m.sum.add(LossTerms{Terms: []TermStats{{name, value, normsOf(g)}}}, 1)
}

// mean is what was measured, per step.
func (m *termMeter) mean() *LossTerms {
	if m == nil || m.steps == 0 {
		return nil
	}
	out := &LossTerms{}
	out.add(m.sum, 1/float64(m.steps))
	return out
}

// Terms travel as tensors of 64-bit integers, the bits of float64 numbers: NUMBER/NAME holds the length on all
// parameters and the value, NUMBER/NAME/PARAMETER the length on one. Number 0 is CrossEntropy, without a value.

// maxTerms and maxTerm bound what a client may say: how many terms, and their values and lengths.
const (
	maxTerms = 64
	maxTerm  = 1e12
)

func (t *LossTerms) tensors() tensor.Map {
	out := tensor.Map{}
	if t == nil {
		return out
	}
	put := func(i int, name string, n Norms, values ...float64) {
		at := fmt.Sprintf("%03d/%s", i, strings.ReplaceAll(name, " ", "_"))
		out[at] = bitsOf(append([]float64{n.All}, values...)...)
		for param, v := range n.On {
			out[at+"/"+param] = bitsOf(v)
		}
	}
	put(0, "fit", t.CrossEntropy)
	for i, term := range t.Terms {
		put(i+1, term.Name, term.Norms, term.Value)
	}
	return out
}

func bitsOf(v ...float64) *tensor.Tensor {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(math.Float64bits(x))
	}
	return tensor.OfInts(out, len(v))
}

// lossTermsOf reads what tensors gave; nil where there is nothing.
func lossTermsOf(m tensor.Map) (*LossTerms, error) {
	if len(m) == 0 {
		return nil, nil
	}
	out := &LossTerms{}
	for _, at := range m.Names() { // sorted: a term comes before its parameters
		number, rest, _ := strings.Cut(at, "/")
		name, param, onOne := strings.Cut(rest, "/")
		k, err := strconv.Atoi(number)
		v := make([]float64, len(m[at].Ints))
		for i, bits := range m[at].Ints {
			v[i] = math.Float64frombits(uint64(bits))
		}
		bad := func(x float64) bool { return !(math.Abs(x) <= maxTerm) }
		want := 1
		if !onOne && k > 0 {
			want = 2
		}
		if err != nil || k < 0 || k > maxTerms || len(v) != want || slices.ContainsFunc(v, bad) || v[0] < 0 {
			return nil, fmt.Errorf("%.100q is no measurement of a term of the loss: %v", at, v)
		}
		n := &out.CrossEntropy
		if k > 0 {
			if !onOne && k == len(out.Terms)+1 {
				out.Terms = append(out.Terms, TermStats{Name: strings.ReplaceAll(name, "_", " "), Value: v[1]})
			}
			if k != len(out.Terms) {
				return nil, errors.New("the terms of the loss are not numbered in order")
			}
			n = &out.Terms[k-1].Norms
		}
		if n.On == nil {
			n.On = map[string]float64{}
		}
		if onOne {
			n.On[param] = v[0]
		} else {
			n.All = v[0]
		}
	}
	return out, nil
}
