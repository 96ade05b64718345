package client_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// countsRows notes the numbers of rows in its calls.
type countsRows struct {
	*spec.Features
	mu    *sync.Mutex
	sizes *[]int
}

func (c countsRows) Batch(rows []int, r *rand.Rand, also ...string) (tensor.Map, error) {
	c.mu.Lock()
	*c.sizes = append(*c.sizes, len(rows))
	c.mu.Unlock()
	return c.Features.Batch(rows, r, also...)
}

// valuesOfAllRows is a method that computes values over all training rows of a client after its steps.
type valuesOfAllRows struct {
	method.Base
	rows, mean **tensor.Tensor
}

func (valuesOfAllRows) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "prompt", Shape: []int{2, t.VisionWidth}, Std: 0.3}}
}

func (valuesOfAllRows) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Vision(method.VisionPrompts{Tokens: s.Param("prompt")}), s.HandText())
}

func (m valuesOfAllRows) Finish(l *method.Local, up *method.Upload) error {
	rows, err := l.Eval(m.Logits)
	if err != nil {
		return err
	}
	mean, err := l.Eval(func(s *method.Scope) graph.Node { return m.Logits(s).Mean(0) })
	*m.rows, *m.mean = rows, mean
	return err
}

// A value over all examples is computed in parts if examples are images and the value has a row for each. A value over
// all rows at once is not split.
func TestValuesOfImagesInParts(t *testing.T) {
	var sizes []int
	var rows, mean *tensor.Tensor
	e := withMethod(valuesOfAllRows{rows: &rows, mean: &mean})
	e.Plan.Rounds, e.Clients = 1, methodtest.ClientsOfOneBackbone(150)
	e.Training.Batch = 150
	e.Clients[0].Train = countsRows{e.Clients[0].Train.(*spec.Features), &sync.Mutex{}, &sizes}
	mustRun(t, e, engine.Settings{})
	if want := []int{150, 64, 64, 22, 150}; !slices.Equal(sizes, want) {
		t.Errorf("rows were read by %v, want %v: a step, scores in parts, their mean at once", sizes, want)
	}
	if fmt.Sprint(rows.Shape, mean.Shape) != "[150 4] [4]" {
		t.Fatalf("shapes %v and %v", rows, mean)
	}
	for c, want := range mean.Data {
		sum := 0.0
		for i := range 150 {
			sum += float64(rows.Row(i).Data[c])
		}
		if got := sum / 150; got-float64(want) > 1e-5 || float64(want)-got > 1e-5 {
			t.Errorf("class %d: the mean of the parts' rows is %g, of all at once %g", c, got, want)
		}
	}
}
