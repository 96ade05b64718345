package bundle

import (
	"fmt"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// Image adds the image tower to g: from normalised pixels [B,3,S,S] and prompts to the features of images [B,D] and of
// their patches [B,M,D], neither normalised.
func (b *Bundle) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (joint, patches graph.Node, err error) {
	if b.drop != nil {
		return b.drop.image.prompted(b.Name, g, pixels, p)
	}
	joint, patches = clip.Vision{VisionArch: b.Vision}.Prompted(g, b.Weights(), pixels, p)
	if err := g.Err(); err != nil {
		return joint, patches, fmt.Errorf("bundle %s: %w", b.Name, err)
	}
	return joint, patches, nil
}

// TakesPromptTokens tells whether Image takes prompts of tokens: exported towers take prompts of pixels only.
func (b *Bundle) TakesPromptTokens() bool { return b.drop == nil }
