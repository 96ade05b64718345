package prompts

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// Deep holds the options of prompts of both towers: "text/prompt" [tokens,w] and "image/prompt" [P,v] at the first
// block, "text/deep" [D-1,tokens,w] and "image/deep" [D-1,P,v], tokens of their own for each of the next D-1 blocks,
// where they replace the outputs of the previous block (Khattak et al., MaPLe, CVPR 2023, eq. 1-6).
type Deep struct {
	OffsetContext `config:",squash"`

	Depth       int     `config:"depth" in:"1..tokens" help:"blocks of the text tower with prompts, at most all"`
	Vision      int     `config:"vision_tokens" in:"1..tokens" help:"prompt tokens of the image tower"`
	VisionDepth int     `config:"vision_depth" in:"0..tokens" help:"blocks of the image tower with prompts; 0: none"`
	DeepStd     float64 `config:"deep_std" in:"0.." help:"standard deviation of the other initial prompts"`
	Insert      string  `config:"insert" in:"promptsrc|fedtpg"`
}

// LongHelp implements configtags.LongHelp.
func (Deep) LongHelp() map[string]string {
	return map[string]string{
		"insert": "promptsrc: initial prompts get positions and pass the image tower's first layer norm; fedtpg: " +
			"neither",
	}
}

// DefaultDeep has 4 tokens in 9 blocks of each tower, as PromptSRC's public code; the first text prompt begins at "a
// photo of a".
var DefaultDeep = Deep{OffsetContext: OffsetContext{Tokens: 4, Words: PhotoPrompt}, Depth: 9, Vision: 4, VisionDepth: 9,
	DeepStd: 0.02, Insert: "promptsrc"}

// Names of the parameters.
const (
	TextTower   = "text"
	ImageTower  = "image"
	FirstBlock  = "/prompt"
	LaterBlocks = "/deep"
)

// Params declares the prompts, all shared.
func (d Deep) Params(client method.ClientSpec) []method.Param {
	out := d.Declare(client, TextTower+FirstBlock, method.Shared)
	add := func(name string, blocks, tokens, width int) {
		if blocks > 0 {
			out = append(out, method.Param{Name: name, Shape: []int{blocks, tokens, width}, Std: d.DeepStd})
		}
	}

	add(TextTower+LaterBlocks, min(d.Depth, client.TextLayers)-1, d.Tokens, client.Width)
	if d.VisionDepth > 0 {
		out = append(out, method.Param{Name: ImageTower + FirstBlock, Shape: []int{d.Vision, client.VisionWidth},
			Std: d.DeepStd})
	}

	add(ImageTower+LaterBlocks, min(d.VisionDepth, client.VisionLayers)-1, d.Vision, client.VisionWidth)
	return out
}

// Text returns the class features [C,D].
func (d Deep) Text(scope *method.Scope) graph.Node {
	if err := DeepTextUnsupported(scope.Task()); d.Depth > 1 && err != "" {
		return scope.Graph().Fail("%s", err)
	}

	p := method.Prompt{Ctx: d.Full(scope, TextTower+FirstBlock), NoPositions: d.Insert == "fedtpg"}
	if n := min(d.Depth, scope.Task().TextLayers) - 1; n > 0 {
		p.Deep = nn.Unbind(scope.Param(TextTower + LaterBlocks))
	}

	return scope.TextFeatures(p)
}

// Image returns the image features [B,D]; those of the data where the image tower has no prompts.
func (d Deep) Image(scope *method.Scope) graph.Node {
	if d.VisionDepth == 0 {
		return scope.Image()
	}

	p := method.VisionPrompts{Normed: d.Insert == "fedtpg"}
	if err := TokensUnsupported(scope.Task(), d.VisionDepth > 1); err != "" {
		return scope.Graph().Fail("%s; lower options.vision_depth", err)
	}

	p.Tokens = scope.Param(ImageTower + FirstBlock)
	if n := min(d.VisionDepth, scope.Task().VisionLayers) - 1; n > 0 {
		p.Deep = nn.Unbind(scope.Param(ImageTower + LaterBlocks))
	}

	return scope.Vision(p)
}

// Logits compares the prompted image features with the prompted class features.
func (d Deep) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(d.Image(scope), d.Text(scope))
}

// DeepTextUnsupported returns the reason why a text tower does not support deep prompts; "" where it does.
func DeepTextUnsupported(t method.ClientSpec) string {
	if t.TextLayers > 0 {
		return ""
	}
	return "the text tower of backbone " + t.Backbone + ", an exported model, does not support deep prompts; set " +
		"options.depth to 1"
}

// TokensUnsupported returns the reason why an image tower does not support prompt tokens, or deep ones; "" where it
// does.
func TokensUnsupported(t method.ClientSpec, deep bool) string {
	switch {
	case t.VisionWidth == 0:
		return "the image tower of backbone " + t.Backbone + ", an exported model, does not support prompt tokens"
	case deep && t.VisionLayers == 0:
		return "deep prompts need a vision transformer, but backbone " + t.Backbone + " is a ResNet"
	}
	return ""
}
