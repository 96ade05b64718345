package multimodal

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// MaPLe learns deep text prompts P_i [tokens,w] of the first blocks, and for each block a linear layer that makes the
// image tower's prompt of that block from it, V_i = P_i W_iᵀ + b_i. Gradients of the image side reach the text
// prompts through them. All of it is averaged (FedAvg).
//
// Khattak et al., MaPLe: Multi-modal Prompt Learning, CVPR 2023, eq. 1-7. Notes:
//   - the first prompt has 2 tokens that begin at "a photo", and "of a" stays behind them, as in the public code;
//   - the layers begin as torch.nn.Linear does, those behind the first block as copies of one draw, as in the code;
//   - 9 blocks are for base-to-new, 3 for other data sets and domains.
type MaPLe struct {
	method.FedAvg
	prompts.OffsetContext `config:",squash"`

	Depth   int     `config:"depth" in:"1..tokens" help:"blocks of both towers with prompts, at most all"`
	DeepStd float64 `config:"deep_std" in:"0.." help:"standard deviation of the initial prompts of later blocks"`
}

var mapleDef = layer.Def{Name: "maple", Title: "MaPLe",
	Paper: "FedAvg of Khattak et al., MaPLe: Multi-modal Prompt Learning, CVPR 2023",
	Default: MaPLe{OffsetContext: prompts.OffsetContext{Tokens: 2, Words: prompts.PhotoPrompt}, Depth: 9,
		DeepStd: 0.02}}

const couple = "couple"

// later returns the number of blocks after the first that have prompts.
func (m MaPLe) later(t method.ClientSpec) int {
	return max(0, min(m.Depth, t.TextLayers, t.VisionLayers)-1)
}

// Params declares, all shared, "text/prompt" [tokens,w] of the first block with its layer "couple/w" [v,w] and
// "couple/b" [v], and of the later blocks "text/deep" [depth-1,tokens,w], "couple/deep/w" [depth-1,v,w] and
// "couple/deep/b" [depth-1,v], depth being no more than the blocks of either tower.
func (m MaPLe) Params(t method.ClientSpec) []method.Param {
	out := append(m.Declare(t, prompts.TextTower+prompts.FirstBlock, method.Shared),
		modules.Linear(couple, t.VisionWidth, t.Width)...)
	if n := m.later(t); n > 0 {
		out = append(out, method.Param{Name: prompts.TextTower + prompts.LaterBlocks,
			Shape: []int{n, m.Tokens, t.Width}, Std: m.DeepStd}, method.Param{Name: couple + prompts.LaterBlocks + "/w",
			Shape: []int{n, t.VisionWidth, t.Width}}, method.Param{Name: couple + prompts.LaterBlocks + "/b",
			Shape: []int{n, t.VisionWidth}})
	}

	return out
}

// Start draws the layers.
func (m MaPLe) Start(global *method.Global) error {
	for _, name := range []string{couple, couple + prompts.LaterBlocks} {
		w, b := global.Shared[name+"/w"], global.Shared[name+"/b"]
		if w == nil {
			continue
		}
		bound := 1 / math.Sqrt(float64(w.Shape[len(w.Shape)-1]))
		for part, t := range map[string]*tensor.Tensor{"/w": w, "/b": b} {
			if name == couple {
				modules.InitUniform(global.Seed, name+part, t, bound)
				continue
			}
			modules.InitUniform(global.Seed, name+part, t.Row(0), bound)
			for i := 1; i < t.Shape[0]; i++ {
				copy(t.Row(i).Data, t.Row(0).Data)
			}
		}
	}

	return nil
}

// Logits compares images and texts under their prompts (eq. 1-7). The layer of the first block reads the whole prompt,
// words and offset. A tower that takes no deep prompts, of a ResNet or an exported model, fails the graph.
func (m MaPLe) Logits(scope *method.Scope) graph.Node {
	t := scope.Task()
	if err := prompts.TokensUnsupported(t, true); err != "" {
		return scope.Graph().Fail("%s; maple needs a vision transformer", err)
	}

	if err := prompts.DeepTextUnsupported(t); m.Depth > 1 && err != "" {
		return scope.Graph().Fail("%s", err)
	}

	text := method.Prompt{Ctx: m.Full(scope, prompts.TextTower+prompts.FirstBlock)}
	image := method.VisionPrompts{Tokens: modules.ApplyLinear(scope, couple, text.Ctx.Slice(0, 0, m.Tokens))}
	if m.later(t) > 0 {
		text.Deep = nn.Unbind(scope.Param(prompts.TextTower + prompts.LaterBlocks))
		w := nn.Unbind(scope.Param(couple + prompts.LaterBlocks + "/w"))
		b := nn.Unbind(scope.Param(couple + prompts.LaterBlocks + "/b"))
		for i, p := range text.Deep {
			image.Deep = append(image.Deep, nn.Linear(p, w[i], b[i], 1, 1))
		}
	}

	return scope.Cosine(scope.Vision(image), scope.TextFeatures(text))
}
