package prompts

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// OffsetContext are the options of a learnable text prompt [tokens,w] that begins at words, as CoOp's ctx_init and the
// prompts of CoCoOp, KgCoOp, MaPLe, PromptSRC and ProGrad do. The parameter is the offset of the prompt from the
// embeddings of the words. The offset is what is trained, averaged and sent; FullPrompt adds the words. Offset and
// prompt have the same gradient, but weight decay pulls the prompt towards the words, and in public code towards 0.
// With fewer tokens than words the first words are learned, and the other words follow them unchanged, as in MaPLe's
// code. With more tokens than words, the words fill the last places, and the tokens in front begin at what is drawn, as
// ProGrad's zeros do.
type OffsetContext struct {
	Tokens int     `config:"tokens" in:"1..tokens" help:"prompt tokens"`
	Words  string  `config:"words" help:"words that initialise the prompt, one token each; empty: random values"`
	Std    float64 `config:"init_std" in:"0.." help:"standard deviation of the initial prompt or offset"`
}

// PhotoPrompt is the initial prompt of most methods.
const PhotoPrompt = "a photo of a"

// Declare returns the offset as a parameter.
func (c OffsetContext) Declare(t method.ClientSpec, name string, o method.Owner) []method.Param {
	return []method.Param{{Name: name, Shape: []int{c.Tokens, t.Width}, Std: c.Std, Owner: o, Words: c.Words}}
}

// Params declares one offset, "ctx", shared.
func (c OffsetContext) Params(t method.ClientSpec) []method.Param {
	return c.Declare(t, "ctx", method.Shared)
}

// Texts returns the class features [C,D] of the prompt "ctx".
func (c OffsetContext) Texts(scope *method.Scope) graph.Node { return scope.Text(c.Full(scope, "ctx")) }

// Logits compares images with the class features of the prompt "ctx", as CoOp does.
func (c OffsetContext) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(scope.Image(), c.Texts(scope))
}

// Full returns the whole prompt [T,w] of a parameter, T at least tokens: the words and the offset.
func (c OffsetContext) Full(scope *method.Scope, name string) graph.Node {
	return c.AddWords(scope, scope.TrainedValue(name))
}

// FullPrompt returns the whole prompt of a parameter of any kind.
func FullPrompt(scope *method.Scope, p method.Param) graph.Node {
	return OffsetContext{Tokens: p.Shape[0], Words: p.Words}.Full(scope, p.Name)
}

// AddWords returns the whole prompt [T,w] of an offset [tokens,w], or [B,T,w] of offsets [B,tokens,w] of each image.
func (c OffsetContext) AddWords(scope *method.Scope, offset graph.Node) graph.Node {
	n := method.Words{Text: c.Words}.Tokens()
	if n == 0 {
		return offset
	}

	width := scope.Task().Width
	words := scope.Graph().Placeholder(method.Words{Text: c.Words}, graph.Float, []int{n, width})
	if n <= c.Tokens { // rows of zeros in front
		pads := scope.Graph().Ints(c.Tokens-n, 0, 0, 0)
		return offset.Add(scope.Graph().Apply(graph.Standard, "Pad", nil, words, pads))
	}

	first, rest := offset.Add(words.Slice(0, 0, c.Tokens)), words.Slice(0, c.Tokens, n)
	if first.Rank() == 2 {
		return graph.Concat(0, first, rest)
	}

	// Rows of zeros make room for the words of every image.
	room := scope.Graph().Apply(graph.Standard, "Pad", nil, first, scope.Graph().Ints(0, 0, 0, 0, n-c.Tokens, 0))
	return room.Add(graph.Concat(0, scope.Graph().Const(tensor.New(c.Tokens, width)), rest))
}
