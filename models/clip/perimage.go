package clip

import (
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// forImages returns the features [B·C,EmbedDim] of all classes under a prompt [B,T,width] for each of B images, B
// possibly symbolic. The passes of the text tower for all images are batched (Zhou et al., CoCoOp, CVPR 2022). Rows
// are, for each image, the prefix and then the suffixes, arranged and masked as in Prompts, in the same way for all
// images.
func (t Text) forImages(tw tower, s *Suffixes, p Prompt) graph.Node {
	zeros := Prompt{Ctx: tw.g.Const(tensor.New(p.length(), t.Width))} // the prompts are added
	r := t.rows(tw, s, zeros, p.Ctx.Shape()[0])
	n, classes := r.all(), len(s.IDs)
	x := tw.pad(p.Ctx, 0, 1, 0, 0, r.p.rows(), 0).Add(graph.Concat(0, r.head, r.tail)).Reshape(-1, t.Width)
	for i := range t.Layers - 1 {
		b := tw.block(i)
		h := b.project(b.norm1(x), 0, 3).heads(b, -1, n)
		if r.dense {
			x = b.rest(x, nn.MergeHeads(nn.Attend(h[0], h[1], h[2], r.masked)))
			continue
		}
		part := func(x graph.Node) []graph.Node { return x.Split(2, r.prefix, r.p.rows()) }
		q, k, v := part(h[0]), part(h[1]), part(h[2])
		x = b.rest(x, nn.MergeHeads(graph.Concat(2, nn.Attend(q[0], k[0], v[0], r.causal),
			r.attendShared(b, q[1], k[0], v[0], k[1], v[1], r.masked))))
	}
	b := tw.block(t.Layers - 1)
	h := b.norm1(x)
	kv := b.project(h, 1, 3).heads(b, -1, n)
	read := r.p.last(r.prefix)
	pick := func(x graph.Node, index []int) graph.Node { // the indexed rows of every image
		return x.Reshape(-1, n, t.Width).Gather(1, tw.g.Ints(index...)).Reshape(-1, t.Width)
	}
	var attended graph.Node
	if r.dense {
		q := b.project(pick(h, read), 0, 1).heads(b, -1, classes)[0]
		attended = nn.MergeHeads(nn.Attend(q, kv[0], kv[1], s.pairsOfLast(tw.g, r.p, 0, r.prefix)))
	} else {
		q := b.project(pick(h, r.queries(r.prefix)), 0, 1).heads(b, -1, len(r.take))[0]
		k, v := kv[0].Split(2, r.prefix, r.p.rows()), kv[1].Split(2, r.prefix, r.p.rows())
		out := r.attendShared(b, q, k[0], v[0], k[1], v[1], r.maskOfLast(tw.g))
		if !isIota(r.place) {
			out = out.Gather(2, tw.g.Ints(r.place...))
		}
		attended = nn.MergeHeads(out)
	}
	return t.head(tw, b.rest(pick(x, read), attended))
}
