package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// CoOp learns one text prompt on each client alone; nothing is exchanged.
//
// Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022, eq. 2-3.
type CoOp struct {
	method.Base
	Context `config:",squash"`
}

var coopDef = Def{Name: "coop", Title: "CoOp", New: newCoOp,
	Paper: "Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022"}

func newCoOp() Layer { return &CoOp{Context: defaultContext} }

func (m *CoOp) Build(method.Method) (method.Method, error) { return *m, m.Check() }

func (CoOp) Traits() method.Traits { return method.Traits{Mean: method.ByExamples} }

func (m CoOp) Params(t method.Task) []method.Param { return m.Declare(t, "ctx", method.Private) }

func (m CoOp) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), m.Features(s, s.Param("ctx")))
}
