package message

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// LossTerms holds the terms of the loss of one client: means over its steps, each taken before the step's
// update.
type LossTerms struct {
	// CrossEntropy are the lengths of the gradient of all terms together that fit labels.
	CrossEntropy Norms       `json:"fit"`
	Terms        []TermStats `json:"terms"`
}

// TermStats is one term of the loss: its value and the lengths of its gradient.
type TermStats struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // as it enters the loss; 0 of Correction
	Norms         // of its own gradient
}

// Norms are Euclidean lengths of a gradient.
type Norms struct {
	All float64            `json:"all"` // on all parameters together
	On  map[string]float64 `json:"on"`  // on each that it reaches, by name
}

// Add adds a times other lengths.
func (n *Norms) Add(m Norms, a float64) {
	n.All += a * m.All
	if n.On == nil {
		n.On = map[string]float64{}
	}
	for name, v := range m.On {
		n.On[name] += a * v
	}
}

// Add adds a times other measurements, term by term.
func (t *LossTerms) Add(more LossTerms, a float64) {
	t.CrossEntropy.Add(more.CrossEntropy, a)
	for _, m := range more.Terms {
		i := slices.IndexFunc(t.Terms, func(s TermStats) bool { return s.Name == m.Name })
		if i < 0 {
			i = len(t.Terms)
			t.Terms = append(t.Terms, TermStats{Name: m.Name})
		}
		t.Terms[i].Value += a * m.Value
		t.Terms[i].Norms.Add(m.Norms, a)
	}
}

// NormsOf measures the sum of some gradients, in float64.
func NormsOf(grads ...tensor.Map) Norms {
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

// norms are the lengths of all measurements.
func (t *LossTerms) norms() []Norms {
	return append([]Norms{t.CrossEntropy}, convert.Slice(t.Terms, func(s TermStats) Norms { return s.Norms })...)
}

// Within returns an error for a value beyond a limit, for a length below 0, and for one that is no number. No
// measurements are within every limit.
func (t *LossTerms) Within(limit float64) error {
	if t == nil {
		return nil
	}

	for _, term := range t.Terms {
		if !(math.Abs(term.Value) <= limit) {
			return fmt.Errorf("the loss term %.50q has the value %v", term.Name, term.Value)
		}
	}

	for _, n := range t.norms() {
		for _, v := range append(slices.Collect(maps.Values(n.On)), n.All) {
			if !(v >= 0 && v <= limit) {
				return fmt.Errorf("the gradient of a loss term has the length %v", v)
			}
		}
	}

	return nil
}

// CheckTerms refuses measurements that nobody asked for: of other terms than the first of names and Correction, in
// their order, or on other parameters.
func (o Instruction) CheckTerms(lossTerms *LossTerms, names []string, base method.Method,
	task method.ClientSpec) error {
	if lossTerms == nil {
		return nil
	}

	names = append(slices.Clone(names), Correction)
	if o.Kind != Train || o.Guarded != nil || len(lossTerms.Terms) > len(names) {
		return fmt.Errorf("%d measured loss terms were not asked for", len(lossTerms.Terms))
	}

	for i, term := range lossTerms.Terms {
		if term.Name != names[i] {
			return fmt.Errorf("%.50q is not the loss term %q", term.Name, names[i])
		}
	}

	params := base.Params(task)
	for _, n := range lossTerms.norms() {
		for name := range n.On {
			if !slices.ContainsFunc(params, func(p method.Param) bool { return p.Name == name }) {
				return fmt.Errorf("a loss term has a gradient on %.50q, which is no parameter", name)
			}
		}
	}

	return nil
}

// Correction is the name of what a method's AdjustGradients adds to the gradients of the loss, which is no term of it.
const Correction = "correction"

// maxTerms and maxTerm bound what a client may report: how many terms, and their values and lengths.
const (
	maxTerms = 64
	maxTerm  = 1e12
)
