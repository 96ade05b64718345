package prompts

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/runtime/graph"
)

// Visual is a learnable prompt of the image tower, one tensor. Its shape is
//
//	shallow [P,v]    tokens beside those of the patches from the first block on (Jia et al., Visual Prompt Tuning,
//	                 ECCV 2022, eq. 4-5); of a ResNet, further keys and values of the attention pooling
//	deep    [L,P,v]  tokens of its own for each of a transformer's L blocks (ibid., eq. 6-7)
//	pixels  [3,S,S]  added to the normalised pixels (Bahng et al., Exploring Visual Prompts for Adapting Large-Scale
//	                 Models, 2022)
//
// with v the width of the image tower's tokens and S the side of its images. A prompt of pixels can be averaged over
// any backbones of one image size, tokens only where v (and L) agree. Tokens join behind the first layer norm. The
// image tower runs in every step and every test.
type Visual struct {
	Kind   string  `config:"vision" in:"shallow|deep|pixels" help:"prompt of the image tower: shallow, deep or pixels"`
	Tokens int     `config:"vision_tokens" in:"1..tokens" help:"prompt tokens of the image tower, in each block"`
	Std    float64 `config:"vision_std" in:"0.." help:"standard deviation of the image tower's initial prompt"`
}

// DefaultVisual has CoOp's length and first values: 16 tokens of the first block, normal with the deviation 0.02.
var DefaultVisual = Visual{Kind: "shallow", Tokens: 16, Std: 0.02}

// Declare returns the prompt as a parameter.
func (v Visual) Declare(t method.ClientSpec, name string, o method.Owner) []method.Param {
	p := method.Param{Name: name, Shape: []int{v.Tokens, t.VisionWidth}, Std: v.Std, Owner: o}
	switch v.Kind {
	case "deep":
		p.Shape = []int{max(1, t.VisionLayers), v.Tokens, t.VisionWidth}
	case "pixels":
		p.Shape = []int{3, t.ImageSize, t.ImageSize}
	}

	return []method.Param{p}
}

// Features returns the image features [B,D] of the batch with a prompt.
func (v Visual) Features(scope *method.Scope, prompt graph.Node) graph.Node {
	client := scope.Task()
	switch {
	case v.Kind == "pixels":
		return scope.Vision(method.VisionPrompts{Pixels: prompt})
	case client.VisionWidth == 0:
		return scope.Graph().Fail("the image tower of backbone %s does not support prompt tokens; use options.vision: "+
			"pixels", client.Backbone)
	case v.Kind == "shallow":
		return scope.Vision(method.VisionPrompts{Tokens: prompt, Normed: true})
	case client.VisionLayers == 0:
		return scope.Graph().Fail("options.vision: deep needs a vision transformer, but backbone %s is a ResNet; use "+
			"shallow or pixels", client.Backbone)
	}

	blocks := make([]graph.Node, client.VisionLayers)
	for i := range blocks {
		blocks[i] = prompt.Slice(0, i, i+1).Reshape(v.Tokens, client.VisionWidth)
	}

	return scope.Vision(method.VisionPrompts{Tokens: blocks[0], Deep: blocks[1:], Normed: true})
}

// Logits compares image features under the prompt "prompt" with those of the hand-written texts.
func (v Visual) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(v.Features(scope, scope.Param("prompt")), scope.HandText())
}

// OnlyTokens returns an error for prompts of pixels.
func (v Visual) OnlyTokens() error {
	if v.Kind == "pixels" {
		return check.OptionErrorf("vision", " is pixels; this method needs prompt tokens: set it to shallow or deep")
	}
	return nil
}
