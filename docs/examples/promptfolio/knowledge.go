package promptfolio

import (
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/runtime/graph"
)

// Knowledge is a wrapper: it keeps the class features t_c that a method compares images with near those of the
// hand-written prompt, h_c: loss + lambda mean_c (1 - cos(t_c, h_c)).
//
// Yao, Zhang, Xu, Visual-Language Prompt Tuning with Knowledge-guided Context Optimization, CVPR 2023, eq. 5, which has
// ‖t_c - h_c‖², twice as much for unit rows; the cosine is the public code's, and 8 the paper's lambda.
type Knowledge struct {
	method.Method
	Lambda float64 `config:"lambda" help:"weight of the distance to the hand-written prompt; 0 removes it"`
}

func init() {
	methods.Register(methods.Def{Name: "knowledge", Title: "KgCoOp's term", New: newKnowledge,
		Paper: "Yao et al., Visual-Language Prompt Tuning with Knowledge-guided Context Optimization, CVPR 2023"})
}

func newKnowledge() methods.Layer { return &Knowledge{Lambda: 8} }

// Build checks the option.
func (m *Knowledge) Build(inner method.Method) (method.Method, error) {
	m.Method = inner
	return *m, methods.Within("lambda", m.Lambda, 0, 1e6)
}

// Traits states that the wrapper leaves the server's mean to what it wraps.
func (Knowledge) Traits() method.Traits { return method.Traits{Mean: method.AsInside} }

// Loss adds the term.
func (m Knowledge) Loss(s *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(s, logits)
	_, text := s.Compared()
	if m.Lambda == 0 {
		return loss
	}
	if !text.OK() {
		return s.Graph().Fail("knowledge needs a method that compares images with class features")
	}
	near := text.Unit().Mul(s.HandText()).Sum(-1).Mean()
	return loss.Add(s.Term("knowledge", near.Neg().Shift(1).Scale(m.Lambda)))
}
