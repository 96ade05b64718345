package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// DeepPrompts are the options of prompts of both towers: "text/prompt" [tokens,w] and "image/prompt" [P,v] at the first
// block, "text/deep" [D-1,tokens,w] and "image/deep" [D-1,P,v], tokens of their own for each of the next D-1 blocks,
// where they take the place of what the block before left (Khattak et al., MaPLe, CVPR 2023, eq. 1-6).
type DeepPrompts struct {
	WordContext `config:",squash"`
	Depth       int     `config:"depth" help:"how many of the text tower's first blocks get prompts, at most all"`
	Vision      int     `config:"vision_tokens" help:"prompt tokens of the image tower"`
	VisionDepth int     `config:"vision_depth" help:"how many blocks of the image tower get prompts; 0: none"`
	DeepStd     float64 `config:"deep_std" help:"standard deviation of initial prompts of images and later blocks"`
	Insert      string  `config:"insert"`
}

// LongHelp implements keys.LongHelp.
func (DeepPrompts) LongHelp() map[string]string {
	return map[string]string{
		"insert": "promptsrc: initial prompts get positions and pass the image tower's first layer norm; fedtpg: " +
			"neither",
	}
}

var defaultDeep = DeepPrompts{WordContext: WordContext{Tokens: 4, Words: aPhoto}, Depth: 9, Vision: 4, VisionDepth: 9,
	DeepStd: 0.02, Insert: "promptsrc"}

// Names of the parameters.
const (
	textTower   = "text"
	imageTower  = "image"
	firstBlock  = "/prompt"
	laterBlocks = "/deep"
)

// Check refuses options that make no sense.
func (d DeepPrompts) Check() error {
	return Join(d.WordContext.Check(), Within("depth", d.Depth, 1, maxTokens),
		Within("vision_tokens", d.Vision, 1, maxTokens), Within("vision_depth", d.VisionDepth, 0, maxTokens),
		Within("deep_std", d.DeepStd, 0, maxWeight), OneOf("insert", d.Insert, "promptsrc", "fedtpg"))
}

// Declare gives the prompts as parameters.
func (d DeepPrompts) Declare(t method.ClientSpec, owner func(name string) method.Owner) []method.Param {
	return append(d.declareText(t, owner), d.declareImage(t, owner)...)
}

func (d DeepPrompts) declareText(t method.ClientSpec, owner func(string) method.Owner) []method.Param {
	out := d.WordContext.Declare(t, textTower+firstBlock, owner(textTower+firstBlock))
	name := textTower + laterBlocks
	if n := min(d.Depth, t.TextLayers) - 1; n > 0 {
		out = append(out, method.Param{Name: name, Shape: []int{n, d.Tokens, t.Width}, Std: d.DeepStd,
			Owner: owner(name)})
	}
	return out
}

func (d DeepPrompts) declareImage(t method.ClientSpec, owner func(string) method.Owner) (out []method.Param) {
	if d.VisionDepth > 0 {
		name := imageTower + firstBlock
		out = append(out, method.Param{Name: name, Shape: []int{d.Vision, t.VisionWidth}, Std: d.DeepStd,
			Owner: owner(name)})
	}
	name := imageTower + laterBlocks
	if n := min(d.VisionDepth, t.VisionLayers) - 1; n > 0 {
		out = append(out, method.Param{Name: name, Shape: []int{n, d.Vision, t.VisionWidth}, Std: d.DeepStd,
			Owner: owner(name)})
	}
	return out
}

// Text gives the class features [C,D].
func (d DeepPrompts) Text(s *method.Scope) graph.Node {
	if d.Depth > 1 && s.Task().TextLayers == 0 {
		return s.Graph().Fail("the text tower of backbone %s, an exported model, does not support deep prompts; set "+
			"options.depth to 1", s.Task().Backbone)
	}
	p := method.Prompt{Ctx: d.Prompt(s, s.Param(textTower+firstBlock)), Bare: d.Insert == "fedtpg"}
	if n := min(d.Depth, s.Task().TextLayers) - 1; n > 0 {
		p.Deep = each(s.Param(textTower + laterBlocks))
	}
	return s.TextOf(p)
}

// Image gives the image features [B,D]: those that are there where the image tower has no prompts.
func (d DeepPrompts) Image(s *method.Scope) graph.Node {
	if d.VisionDepth == 0 {
		return s.Image()
	}
	p := method.VisionPrompts{Normed: d.Insert == "fedtpg"}
	if err := takesTokens(s.Task(), d.VisionDepth > 1); err != "" {
		return s.Graph().Fail("%s; lower options.vision_depth", err)
	}
	p.Tokens = s.Param(imageTower + firstBlock)
	if n := min(d.VisionDepth, s.Task().VisionLayers) - 1; n > 0 {
		p.Deep = each(s.Param(imageTower + laterBlocks))
	}
	return s.Vision(p)
}

// takesTokens tells why an image tower does not support prompt tokens, or no deep ones; empty where it does.
func takesTokens(t method.ClientSpec, deep bool) string {
	switch {
	case t.VisionWidth == 0:
		return "the image tower of backbone " + t.Backbone + ", an exported model, does not support prompt tokens"
	case deep && t.VisionLayers == 0:
		return "deep prompts need a vision transformer, but backbone " + t.Backbone + " is a ResNet"
	}
	return ""
}

// each cuts x [n,...] into n nodes [...].
func each(x graph.Node) []graph.Node {
	shape, _ := x.Shape().Ints()
	out := make([]graph.Node, shape[0])
	for i := range out {
		out[i] = x.Slice(0, i, i+1).Reshape(shape[1:]...)
	}
	return out
}

// shared says of every parameter that the server averages it.
func shared(string) method.Owner { return method.Shared }
