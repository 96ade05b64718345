package clip

import (
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// Features is the image tower. It maps normalised pixels [B,3,Image,Image], B possibly symbolic, to the image features
// image [B,EmbedDim] and the features of every patch [B,Patches,EmbedDim], both not normalised. Patch features of a
// transformer pass through the same final norm and projection as the class token; those of a ResNet are the attention
// pooling with every cell as the query. Outputs that are not used cost nothing: without patches, only the image's query
// passes through the end of the tower.
func (v Vision) Features(g *graph.Graph, w Weights, pixels graph.Node) (image, patches graph.Node) {
	return v.PromptedFeatures(g, w, pixels, VisionPrompts{})
}

// PromptedFeatures is Features with prompts; if prompts ask for them, image is the embeddings of patches or the last
// tokens.
func (v Vision) PromptedFeatures(g *graph.Graph, weights Weights, pixels graph.Node, prompts VisionPrompts) (image,
	patches graph.Node) {
	err := v.Check()
	if err == nil && g.Err() == nil {
		err = v.checkInputs(pixels, prompts)
	}

	if err != nil || g.Err() != nil {
		n := g.Fail("%w", err)
		return n, n
	}

	if prompts.Pixels.OK() {
		pixels = pixels.Add(prompts.Pixels)
	}

	if v.Box != nil {
		whole := v
		whole.Box = nil
		_, patches = whole.PromptedFeatures(g, weights, pixels, VisionPrompts{})
		return v.Box(pixels), patches
	}

	tw := v.tower(g, weights)
	tw.changes = prompts.Changes
	switch {
	case v.ResNet():
		return resnet{tw, v}.features(pixels, prompts.Tokens)
	case prompts.Embeddings:
		n := v.Tokens()
		return v.tokens(tw, pixels).Slice(1, n-v.Patches(), n), patches
	}

	return v.transformer(tw, pixels, prompts)
}

func (v Vision) transformer(tw tower, pixels graph.Node, prompts VisionPrompts) (image, patches graph.Node) {
	own := v.Tokens()
	n := own
	hidden := v.tokens(tw, pixels).Reshape(-1, v.Width)
	if !prompts.Normed {
		hidden, n = tw.behind(hidden, n, own, prompts.Tokens)
	}

	if !v.NoPreNorm {
		hidden = tw.norm(hidden, "visual.ln_pre")
	}

	if prompts.Normed {
		hidden, n = tw.behind(hidden, n, own, prompts.Tokens)
	}

	for i := range v.Layers {
		if i > 0 && i <= len(prompts.Deep) && prompts.Deep[i-1].OK() {
			hidden, n = tw.behind(hidden, n, own, prompts.Deep[i-1])
		}
		if i < v.Layers-1 {
			hidden = tw.block(i).full(hidden, graph.Node{}, n)
		}
	}

	if prompts.LastTokens {
		return tw.block(v.Layers-1).full(hidden, graph.Node{}, n).Reshape(-1, n, v.Width), patches
	}

	return v.pool(tw, hidden, n, own)
}

// Tokens returns the number of tokens of an image without prompts; 0 for a ResNet, which has none.
func (a VisionArch) Tokens() int {
	if a.ResNet() {
		return 0
	}
	if a.NoClass {
		return a.Patches()
	}
	return 1 + a.Patches()
}

// tokens returns [class token, patch embeddings] plus positions, [B,1+patches,width], without the class token if there
// is none. The convolution with stride = kernel is a linear layer on patches.
func (v Vision) tokens(tw tower, pixels graph.Node) graph.Node {
	side, p := v.Image/v.Patch, v.Patch
	if used := side * p; used < v.Image {
		pixels = pixels.Slice(2, 0, used).Slice(3, 0, used)
	}

	flat := pixels.Reshape(-1, 3, side, p, side, p).Transpose(0, 2, 4, 1, 3, 5).Reshape(-1, 3*p*p)
	emb := nn.Linear(flat, tw.weights.Node(tw.graph, "visual.conv1.weight", v.Width, 3*p*p), graph.Node{}, 1, 1)
	n := v.Patches()
	if v.NoClass {
		return emb.Reshape(-1, n, v.Width).Add(tw.weights.Node(tw.graph, "visual.positional_embedding", n, v.Width))
	}

	// One row of zeros is prepended for the class token, which is added as part of position 0.
	x := pad(emb.Reshape(-1, n, v.Width), 0, 1, 0, 0, 0, 0)
	class := pad(tw.weights.Node(tw.graph, "visual.class_embedding", v.Width).Reshape(1, v.Width), 0, 0, n, 0)
	return x.Add(tw.weights.Node(tw.graph, "visual.positional_embedding", n+1, v.Width).Add(class))
}

// pad adds zeros before and after each axis.
func pad(x graph.Node, pads ...int) graph.Node {
	g := x.Graph()
	return g.Apply(graph.Standard, "Pad", nil, x, g.Ints(pads...))
}

// first computes the block on sequences of n rows, only for the first row of each: [batch,width].
func (b block) first(x graph.Node, n int) graph.Node {
	h := b.norm1(x)
	kv := b.project(h, 1, 3).heads(b, -1, n)
	q := b.project(firstRows(h, n, b.width), 0, 1).heads(b, -1, 1)
	return b.rest(firstRows(x, n, b.width), nn.MergeHeads(nn.Attend(q[0], kv[0], kv[1], graph.Node{})))
}

func firstRows(x graph.Node, n, width int) graph.Node {
	return x.Reshape(-1, n, width).Slice(1, 0, 1).Reshape(-1, width)
}

func (v Vision) head(tw tower, rows graph.Node) graph.Node {
	return v.projected(tw, tw.norm(rows, "visual.ln_post"))
}
