package client_test

import (
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// countsLocalClasses is a method whose prompt has the number of local classes as the gradient of each element. It wraps
// the data and adds a label of class 3.
type countsLocalClasses struct{ method.Base }

func (countsLocalClasses) Params(t method.ClientSpec) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{1, t.Width}, Std: 0.1}}
}

func (countsLocalClasses) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), s.Text(s.Param("ctx")))
}

func (countsLocalClasses) Loss(s *method.Scope, _ graph.Node) graph.Node {
	own := s.Input(method.LocalClassesInput, graph.Float, graph.Static(s.Task().Classes))
	return s.Term("count", s.Param("ctx").Sum().Mul(own.Sum()))
}

type withClass3 struct{ method.Data }

func (d withClass3) Labels() []int64 { return append([]int64{3}, d.Data.Labels()...) }

func (countsLocalClasses) Begin(l *method.Local) error {
	l.Data = withClass3{l.Data}
	return nil
}

// LocalClasses are the classes of the client's own examples, also if a method wraps its data. Client 3 has examples of
// the classes 3, 0 and 1, client 0 of all four, client 2 here of the classes 0 and 1.
func TestOwnedIsTheClientsOwn(t *testing.T) {
	e := withMethod(countsLocalClasses{})
	e.Clients[2].Train = methodtest.Rows(100, 2, 5, len(methodtest.Classes))
	rec := trace.NewRecorder()
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
	for client, want := range map[string]float32{"c0": 4, "c2": 2, "c3": 3} {
		if got := rec.Tensors["r0/"+client+"/s0/grad/ctx"]; got.Data[0] != want {
			t.Errorf("%s owns %v classes, expected %v", client, got.Data[0], want)
		}
	}
}

// keepsGradients is a method that keeps the gradients of its steps.
type keepsGradients struct {
	countsLocalClasses
	kept *[]*tensor.Tensor
}

func (m keepsGradients) AdjustGradients(_ *method.Local, g tensor.Map) error {
	*m.kept = append(*m.kept, g["ctx"])
	return nil
}

// After a step the memory of its gradients is used again. A method that kept one has a tensor without elements.
func TestGradientsEndWithTheStep(t *testing.T) {
	var kept []*tensor.Tensor
	e := withMethod(keepsGradients{kept: &kept})
	mustRun(t, e, engine.Settings{Workers: 1})
	for i, g := range kept {
		if g.Len() > 0 {
			t.Errorf("the gradient of step %d of %d still has %d elements", i, len(kept), g.Len())
		}
	}
	if len(kept) == 0 {
		t.Error("there was no step")
	}
}

// FedTPG scores training examples against the client's own classes. Prototypes of other classes, which GGTPC adds, do
// not count; otherwise the loss would be a billion.
func TestPrototypesOfOtherClasses(t *testing.T) {
	m := buildMethod(t, "fedtpg", []string{"ggtpc"}, map[string]any{"heads": 2, "mult": 1, "prototypes": true,
		"min_count": 1})
	e := withMethod(m)
	e.Clients = methodtest.ClientsOfOneBackbone(2, 2, 2, 2) // each client has two of the four classes, on two domains
	for _, r := range mustRun(t, e, engine.Settings{}).Records {
		if !(*r.Loss > 0 && *r.Loss < 10) {
			t.Errorf("round %d: loss %g", r.Round, *r.Loss)
		}
	}
}
