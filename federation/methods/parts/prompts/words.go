package prompts

import (
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// WordContext are the options of a learnable text prompt [tokens,w] that begins at words, as CoOp's ctx_init and the
// prompts of CoCoOp, KgCoOp, MaPLe, PromptSRC and ProGrad do. What is learned, and travels, is what is added to the
// embeddings of the words, which the same gradients move in the same way; weight decay pulls towards the words, in
// public code towards 0. Of fewer tokens than words the first words are learned and the others stay behind them, as in
// MaPLe's code; of more, the words fill the last places and the tokens in front begin at what is drawn, as ProGrad's
// zeros do.
type WordContext struct {
	Tokens int     `config:"tokens" help:"prompt tokens"`
	Words  string  `config:"words" help:"words that initialise the prompt, one token each; empty: random values"`
	Std    float64 `config:"init_std" help:"standard deviation of the initial prompt, or of what is added to its words"`
}

// APhoto is the prompt that most learners begin at.
const APhoto = "a photo of a"

// Check refuses options that make no sense.
func (c WordContext) Check() error {
	return check.Join(check.Within("tokens", c.Tokens, 1, check.MaxTokens),
		check.Within("init_std", c.Std, 0, check.MaxWeight))
}

// Declare gives the prompt as a parameter.
func (c WordContext) Declare(t method.ClientSpec, name string, o method.Owner) []method.Param {
	return []method.Param{{Name: name, Shape: []int{c.Tokens, t.Width}, Std: c.Std, Owner: o, Words: c.Words}}
}

// Prompt is the whole prompt [T,w], T at least tokens, of what was learned, [tokens,w] or [B,tokens,w] for each image.
func (c WordContext) Prompt(s *method.Scope, learned graph.Node) graph.Node {
	n := len(strings.Fields(c.Words))
	if n == 0 {
		return learned
	}
	words, w := s.Words(c.Words), s.Task().Width
	if n <= c.Tokens { // rows of zeros in front
		pads := s.Graph().Ints(c.Tokens-n, 0, 0, 0)
		return learned.Add(s.Graph().Apply(graph.Standard, "Pad", nil, words, pads))
	}
	learned, rest := learned.Add(words.Slice(0, 0, c.Tokens)), words.Slice(0, c.Tokens, n)
	if learned.Rank() == 2 {
		return graph.Concat(0, learned, rest)
	}
	// Rows of zeros make room for the words of every image.
	room := s.Graph().Apply(graph.Standard, "Pad", nil, learned, s.Graph().Ints(0, 0, 0, 0, n-c.Tokens, 0))
	return room.Add(graph.Concat(0, s.Graph().Const(tensor.New(c.Tokens, w)), rest))
}
