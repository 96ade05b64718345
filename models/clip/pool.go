package clip

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Poolings: the tokens from which the features of a tower are read.
const (
	EndPool       = "end"       // the end token of a text
	FirstPool     = "first"     // the first token
	LastPool      = "last"      // the last position of the context, padding included
	MeanPool      = "mean"      // the mean of an image's patches, or of a text's tokens up to the end token
	AttentionPool = "attention" // one learned query over the patches, and an MLP (Zhai et al., SigLIP, ICCV 2023)
)

func checkPool(what, pool string, known ...string) error {
	if pool != "" && !slices.Contains(known, pool) {
		return fmt.Errorf("%s: pool %q, must be one of %v", what, pool, known)
	}
	return nil
}

// checkPooling returns an error if the pooling and the projection of a vision transformer are inconsistent.
func (a VisionArch) checkPooling() error {
	switch err := checkPool("vision tower", a.Pool, FirstPool, MeanPool, AttentionPool); {
	case err != nil:
		return err
	case a.NoClass && (a.Pool == "" || a.Pool == FirstPool):
		return errors.New("vision tower: without a class token, pool must be mean or attention")
	case a.NoProjection && a.EmbedDim != a.Width:
		return fmt.Errorf("vision tower: without a projection, features of %d numbers cannot come from a width of %d",
			a.EmbedDim, a.Width)
	case a.NormPooled && a.Pool == AttentionPool:
		return errors.New("vision tower: attention pooling has the last norm in front of it")
	}

	return nil
}

// pooled returns the rows [C,width] from which features of texts are computed, for hidden [C·n,width] after the last
// block; emb [C,n,width] are the embeddings, and read [C] is the position of the end token.
func (t Text) pooled(hidden, emb, read graph.Node) graph.Node {
	n := emb.Dim(1)
	tokens := hidden.Reshape(-1, n, t.Width)
	switch t.Pool {
	case FirstPool:
		return tokens.Slice(1, 0, 1).Reshape(-1, t.Width)
	case LastPool:
		return tokens.Slice(1, n-1, n).Reshape(-1, t.Width)
	case MeanPool:
		g := hidden.Graph()
		own := padding(read, n).Where(g.Scalar(0), g.Scalar(1)) // [C,n]
		count := read.Add(g.Ints(1)).Cast(graph.Float).Unsqueeze(1)
		return own.Div(count).Unsqueeze(1).MatMul(tokens).Reshape(-1, t.Width)
	}

	return hidden.Rows(rowIndex(emb, read, n))
}

// length returns the number of positions of sequences if the longest has the given number of tokens: the full context
// if padding is attended to or read.
func (t Text) length(longest int) int {
	if t.Box != nil || t.Bidirectional && !t.Masked || t.Pool == LastPool {
		return t.Context
	}
	return longest
}

// mask returns the attention mask, [n,n] or [C,1,1,n], or no node if every token attends to all.
func (t Text) mask(read graph.Node, n int) graph.Node {
	g := read.Graph()
	switch {
	case !t.Bidirectional:
		return g.Const(causal(n))
	case !t.Masked:
		return graph.Node{}
	}

	return padding(read, n).Where(g.Scalar(nn.MaskValue), g.Scalar(0)).Reshape(-1, 1, 1, n)
}

// padding returns [C,n]: which of n tokens follow the end token, whose position is read [C].
func padding(read graph.Node, n int) graph.Node {
	return read.Graph().Ints(tensor.Indices(n)...).Greater(read.Unsqueeze(1))
}

// plainOnly reports whether prompts use the plain form because classes share no prefix.
func (t Text) plainOnly(s *Suffixes) bool {
	return t.Box != nil || t.Bidirectional || s.sos == nil || t.Pool != "" && t.Pool != EndPool
}

// checkPlain returns an error if a prompt has no plain form.
func (t Text) checkPlain(s *Suffixes, prompt Prompt) error {
	if t.Box != nil {
		if prompt.PerImage() || len(prompt.Deep) > 0 || prompt.NoPositions || !prompt.Changes.None() {
			return errors.New("text tower: deep prompts, prompts without positions, prompts for each image, low-rank " +
				"changes and adapters need the inside of a tower, and this one trains by a gradient file")
		}
		return nil
	}

	if t.plainOnly(s) && (prompt.PerImage() || len(prompt.Deep) > 0 || prompt.NoPositions || prompt.ReadOffset > 0) {
		return errors.New("text tower: deep prompts, prompts without positions and prompts for each image need a " +
			"causal tower that is read at the end token, as CLIP's is, and this one is not")
	}

	if t.PostNorm && !prompt.Changes.None() {
		return errors.New("text tower: low-rank changes and adapters need blocks with norms first, and this tower " +
			"has them last, like BERT")
	}

	return nil
}

// pool returns the features of an image and of its patches, from the rows hidden [B·n,width] before the last block.
// The first own of every n rows are the image's tokens; prompts follow them.
func (v Vision) pool(tw tower, hidden graph.Node, n, own int) (image, patches graph.Node) {
	last := tw.block(v.Layers - 1)
	all := last.full(hidden, graph.Node{}, n)
	some := func(x graph.Node, from, to int) graph.Node {
		return x.Reshape(-1, n, v.Width).Slice(1, from, to)
	}
	switch v.Pool {
	case MeanPool:
		parts := some(all, own-v.Patches(), own)
		patches = v.head(tw, parts.Reshape(-1, v.Width)).Reshape(-1, v.Patches(), v.EmbedDim)
		if v.NormPooled {
			return v.head(tw, parts.Mean(1)), patches
		}
		normed := tw.norm(parts.Reshape(-1, v.Width), "visual.ln_post").Reshape(-1, v.Patches(), v.Width)
		return v.projected(tw, normed.Mean(1)), patches
	case AttentionPool:
		block := block{tw, -1, "visual.attn_pool"}
		seen := n - (own - v.Patches()) // patches and prompts; the class token is not pooled
		if seen < n {
			all = some(all, n-seen, n).Reshape(-1, v.Width)
		}
		rows := tw.norm(all, "visual.ln_post")
		probe := tw.weights.Node(tw.graph, "visual.attn_pool.probe", 1, 1, v.Width).Reshape(1, v.Width)
		q := block.project(probe, 0, 1).heads(block, -1, 1)[0]
		kv := block.project(rows, 1, 3).heads(block, -1, seen)
		image = block.pooledBy(nn.MergeHeads(nn.Attend(q, kv[0], kv[1], graph.Node{})))
		// A query over a single patch returns its value.
		ofPatches := rows.Reshape(-1, seen, v.Width).Slice(1, 0, v.Patches()).Reshape(-1, v.Width)
		value := block.project(ofPatches, 2, 3).joined()
		patches = v.projected(tw, block.pooledBy(value)).Reshape(-1, v.Patches(), v.EmbedDim)
		return v.projected(tw, image), patches
	}

	patches = v.head(tw, some(all, own-v.Patches(), own).Reshape(-1, v.Width)).Reshape(-1, v.Patches(), v.EmbedDim)
	return v.head(tw, last.first(hidden, n)), patches
}

// pooledBy returns the part of an attention pooling after its attention.
func (b block) pooledBy(attended graph.Node) graph.Node {
	h := b.linear(attended, ".attn.out_proj", b.width, b.width)
	return h.Add(b.feedForward(b.norm(h, b.name+".ln_2")))
}

// projected maps rows after the last norm to features.
func (v Vision) projected(tw tower, rows graph.Node) graph.Node {
	if v.NoProjection {
		return rows
	}

	y := tw.project(rows, "visual.proj", "visual_projection.weight", v.EmbedDim)
	if v.ProjectionBias {
		y = y.Add(tw.weights.Node(tw.graph, "visual_projection.bias", v.EmbedDim))
	}

	return y
}
