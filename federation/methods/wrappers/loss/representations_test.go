package loss

import (
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// offset is KgCoOp without its term: its parameter is an offset from words.
type offset struct {
	method.FedAvg
	prompts.OffsetContext
}

func (m offset) Params(t method.ClientSpec) []method.Param { return m.Declare(t, "ctx", method.Shared) }

func (m offset) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), s.Text(m.Full(s, "ctx")))
}

// twoPrompts has another shared prompt.
type twoPrompts struct{ offset }

func (m twoPrompts) Params(t method.ClientSpec) []method.Param {
	return append(m.offset.Params(t), m.Declare(t, "global", method.Shared)...)
}

// The class features of a shared prompt that begins at words are those of the whole prompt. MOON centres the classes of
// each prompt.
func TestPromptsAreRepresentedWithTheirWords(t *testing.T) {
	task := method.ClientSpec{Classes: 3, Width: 8, Dim: 8, Scale: 1, TextLayers: 1}
	m := offset{OffsetContext: prompts.OffsetContext{Tokens: 4, Words: prompts.PhotoPrompt}}
	s := method.ScopeOf(m, task)
	if got := represent(m, s, "prompt"); got != represent(m, s, "text") || s.Graph().Err() != nil {
		t.Errorf("prompt is %v: %v", got, s.Graph().Err())
	}
	s = method.ScopeOf(twoPrompts{m}, task)
	if got := (MOON{Method: twoPrompts{m}, Centre: true}).represent(s, "prompt"); got.Dim(0) != 2*3 {
		t.Errorf("two prompts of three classes have %d rows: %v", got.Dim(0), s.Graph().Err())
	}
}
