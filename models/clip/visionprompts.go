package clip

import (
	"errors"
	"fmt"

	"promptfed/runtime/graph"
)

// VisionPrompts are learnable inputs of an image tower besides the pixels. The zero value has none.
type VisionPrompts struct {
	// Pixels [3,Image,Image] or [B,3,Image,Image] are added to the normalised pixels (Bahng et al. 2022, visual
	// prompting).
	Pixels graph.Node
	// Tokens [P,Width] or [B,P,Width] are added to the tokens of a transformer's first block, without positions (Jia et
	// al. 2022, VPT-shallow); in a ResNet, they are additional keys and values of the attention pooling.
	Tokens graph.Node
	// Deep[i] [P,Width] or [B,P,Width] replaces the prompt tokens at the input of block i+1 of a transformer
	// (VPT-deep); if it is absent, the output of the block before is kept.
	Deep []graph.Node
	// Normed adds Tokens after the tower's first layer norm, as in VPT; otherwise they pass through it, as in the
	// public code of CLIP's deep prompts (Khattak et al. 2023, MaPLe).
	Normed bool
	// Changes are the changes of a transformer's blocks.
	Changes BlockChanges
	// Embeddings returns [B,Patches,Width] in place of image features: a transformer's patch embeddings with positions,
	// before the first layer norm. Of the prompts, only Pixels affect them.
	Embeddings bool
	// LastTokens returns [B,Tokens,Width] in place of image features: a transformer's tokens after the last block,
	// before the last layer norm and the projection. Prompt tokens, if any, are at their end.
	LastTokens bool
}

// PixelsOnly reports whether the prompts need no inside of a tower.
func (p VisionPrompts) PixelsOnly() bool {
	return !p.Tokens.OK() && len(p.Deep) == 0 && p.Changes.None() && !p.Embeddings && !p.LastTokens
}

func (v Vision) checkInputs(pixels graph.Node, prompts VisionPrompts) error {
	if v.Box != nil && !prompts.PixelsOnly() {
		return errors.New("vision tower: prompt tokens, low-rank changes and adapters need the inside of a tower, " +
			"and this one trains by a gradient file")
	}

	if s := pixels.Shape(); len(s) != 4 || !s[1].Is(3) || !s[2].Is(v.Image) || !s[3].Is(v.Image) {
		return fmt.Errorf("vision tower: pixels %v, must be [batch,3,%d,%d]", s, v.Image, v.Image)
	}

	if s := prompts.Pixels; s.OK() {
		d := s.Shape()
		if n := len(d); n < 3 || n > 4 || !d[n-3].Is(3) || !d[n-2].Is(v.Image) || !d[n-1].Is(v.Image) {
			return fmt.Errorf("vision tower: a prompt of pixels %v, must be [3,%d,%d], with or without a batch", d,
				v.Image, v.Image)
		}
	}

	switch {
	case v.ResNet() && len(prompts.Deep) > 0:
		return fmt.Errorf("vision tower: deep prompts are for transformers; a ResNet takes prompts of pixels and of " +
			"attention pooling")
	case v.ResNet() && prompts.Embeddings:
		return fmt.Errorf("vision tower: embeddings of patches are a transformer's, and this is a ResNet")
	case v.ResNet() && prompts.LastTokens:
		return fmt.Errorf("vision tower: last tokens are a transformer's, and this is a ResNet")
	case v.ResNet() && !prompts.Changes.None():
		return fmt.Errorf("vision tower: low-rank changes and adapters are for transformers, and this is a ResNet")
	case len(prompts.Deep) > max(v.Layers-1, 0):
		return fmt.Errorf("vision tower: %d deep prompts for %d blocks after the first", len(prompts.Deep), v.Layers-1)
	}

	for _, t := range append([]graph.Node{prompts.Tokens}, prompts.Deep...) {
		if !t.OK() {
			continue
		}
		d := t.Shape()
		if n := len(d); n < 2 || n > 3 || !d[n-1].Is(v.Width) || !d[n-2].Static() || d[n-2].N < 1 {
			return fmt.Errorf("vision tower: prompt tokens %v, must be [tokens,%d], with or without a batch", d,
				v.Width)
		}
	}

	return prompts.Changes.check("vision tower", v.Width, v.Layers, v.Units(), v.EmbedDim)
}

// behind is Appended for rows [B·n,width], if there are tokens.
func (t tower) behind(hidden graph.Node, n, own int, tokens graph.Node) (graph.Node, int) {
	if !tokens.OK() {
		return hidden, n
	}
	hidden, n = Appended(hidden.Reshape(-1, n, t.width), n, own, tokens)
	return hidden.Reshape(-1, t.width), n
}

// Appended puts prompt tokens [P,width] or [B,P,width] after the first own of n tokens of every sequence of hidden
// [B,n,width], in place of the others, and returns the new number of tokens.
func Appended(hidden graph.Node, n, own int, tokens graph.Node) (graph.Node, int) {
	if n > own {
		hidden = hidden.Slice(1, 0, own)
	}

	added, front := tokens.Dim(-2), []int{own, 0, 0, 0}
	if tokens.Rank() == 3 {
		front = []int{0, own, 0, 0, 0, 0}
	}

	// The tokens are added to rows of zeros, so the batch may be symbolic.
	return pad(hidden, 0, 0, 0, 0, added, 0).Add(pad(tokens, front...)), own + added
}
