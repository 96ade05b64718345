package message

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/runtime/tensor"
)

// LossTerms holds the terms of the loss of one client: means over its steps, each taken before the step's
// update.
type LossTerms struct {
	// CrossEntropy are the lengths of the gradient of all terms together that fit labels.
	CrossEntropy Norms
	Terms        []TermStats
}

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

// tensors are the bits of float64 numbers: NUMBER/NAME holds the length on all parameters and the value,
// NUMBER/NAME/PARAMETER the length on one. Number 0 is CrossEntropy, without a value.
func (t *LossTerms) tensors() tensor.Map {
	out := tensor.Map{}
	if t == nil {
		return out
	}
	put := func(i int, name string, n Norms, values ...float64) {
		at := termAt(i, name)
		out[at] = bitsOf(append([]float64{n.All}, values...)...)
		for param, v := range n.On {
			out[at+"/"+param] = bitsOf(v)
		}
	}
	put(0, fitName, t.CrossEntropy)
	for i, term := range t.Terms {
		put(i+1, term.Name, term.Norms, term.Value)
	}
	return out
}

// fitName stands for CrossEntropy.
const fitName = "fit"

func termAt(number int, name string) string {
	return fmt.Sprintf("%03d/%s", number, strings.ReplaceAll(name, " ", "_"))
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
			return nil, fmt.Errorf("%.100q is not a valid measurement of a loss term: %v", at, v)
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

// Correction is the name of what a method's AdjustGradients adds to the gradients of the loss, which is no term of it.
const Correction = "correction"

// maxTerms and maxTerm bound what a client may report: how many terms, and their values and lengths.
const (
	maxTerms = 64
	maxTerm  = 1e12
)
