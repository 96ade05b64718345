package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// ZeroShot scores images against the hand-written prompt (data.template) and learns nothing.
//
// Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021, section 3.1.
type ZeroShot struct{ method.Base }

func newZeroShot() layer { return &ZeroShot{} }

func (m *ZeroShot) build(method.Method) (method.Method, error) { return *m, nil }

func (ZeroShot) Params(method.Task) []method.Param { return nil }

func (ZeroShot) Logits(s *method.Scope) graph.Node { return s.Cosine(s.Image(), s.HandText()) }
