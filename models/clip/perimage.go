package clip

import (
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// forImages gives the features [B·C,EmbedDim] of all classes under a prompt [B,T,width] for each of B images, B
// possibly symbolic: one pass of the text tower for each image, all of them side by side (Zhou et al., CoCoOp, CVPR
// 2022). Rows are, for each image, the prefix and then the suffixes, laid out and masked as in Prompts; all images
// have the same.
func (t Text) forImages(tw tower, s *Suffixes, p Prompt) graph.Node {
	r := t.rows(tw, s, Prompt{Ctx: tw.g.Const(tensor.New(p.length(), t.Width))}) // zeros make room for the prompts
	n, classes := r.all(), len(s.IDs)
	x := tw.pad(p.Ctx, 0, 1, 0, 0, r.p.rows(), 0).Add(graph.Concat(0, r.head, r.tail)).Reshape(-1, t.Width)
	for i := range t.Layers - 1 {
		b := tw.block(i)
		h := b.project(b.norm1(x), 0, 3).heads(b, -1, n)
		if r.dense {
			x = b.rest(x, nn.Rows(nn.Attend(h[0], h[1], h[2], r.masked)))
			continue
		}
		q, k, v := h[0].Split(2, r.prefix, r.p.rows()), h[1].Split(2, r.prefix, r.p.rows()), h[2].Split(2, r.prefix,
			r.p.rows())
		x = b.rest(x, nn.Rows(graph.Concat(2, nn.Attend(q[0], k[0], v[0], r.causal),
			r.attendShared(b, q[1], k[0], v[0], k[1], v[1], r.masked))))
	}
	b := tw.block(t.Layers - 1)
	h := b.norm1(x)
	kv := b.project(h, 1, 3).heads(b, -1, n)
	read := r.p.last()
	for i := range read {
		read[i] += r.prefix
	}
	pick := func(x graph.Node, index []int) graph.Node { // rows of every image
		return x.Reshape(-1, n, t.Width).Gather(1, tw.g.Ints(index...)).Reshape(-1, t.Width)
	}
	var attended graph.Node
	if r.dense {
		q := b.project(pick(h, read), 0, 1).heads(b, -1, classes)[0]
		attended = nn.Rows(nn.Attend(q, kv[0], kv[1], s.pairsOfLast(tw.g, r.p, 0, r.prefix)))
	} else {
		queries := make([]int, len(r.take))
		for i, c := range r.take {
			queries[i] = read[c]
		}
		q := b.project(pick(h, queries), 0, 1).heads(b, -1, len(queries))[0]
		k, v := kv[0].Split(2, r.prefix, r.p.rows()), kv[1].Split(2, r.prefix, r.p.rows())
		out := r.attendShared(b, q, k[0], v[0], k[1], v[1], r.maskOfLast(tw.g))
		if !isIota(r.place) {
			out = out.Gather(2, tw.g.Ints(r.place...))
		}
		attended = nn.Rows(out)
	}
	return t.head(tw, b.rest(pick(x, read), attended))
}

// StepBytesForImage is about how much memory a training step takes for each image that has a prompt of its own of so
// many tokens: what the forward pass leaves for the backward one, and as much again for what that is working on.
func (t Text) StepBytesForImage(s *Suffixes, tokens int) int {
	p := s.packing(0)
	prefix := 1 + tokens
	rows := prefix + p.rows()
	keys := prefix + p.size
	if rows <= denseRows {
		keys = rows
	}
	// Of each row: two norms, queries, keys and values twice (as rows and by head), what was attended, twice, two sums,
	// the feed-forward layers twice, before and behind their activation; of each head three times the scores.
	floats := rows * (t.Layers*(12*t.Width+2*t.Units()+3*t.Heads*keys) + t.Width)
	return 2 * 4 * floats
}
