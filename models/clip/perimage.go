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
func (t Text) forImages(tw tower, suffixes *Suffixes, p Prompt) graph.Node {
	zeros := Prompt{Ctx: tw.graph.Const(tensor.New(p.length(), t.Width))} // the prompts are added
	promptRows := t.rows(tw, suffixes, zeros, p.Ctx.Shape()[0])
	n, classes := promptRows.all(), len(suffixes.IDs)
	hidden := pad(p.Ctx, 0, 1, 0, 0, promptRows.packing.rows(), 0).Add(graph.Concat(0, promptRows.head,
		promptRows.tail)).Reshape(-1, t.Width)

	for i := range t.Layers - 1 {
		b := tw.block(i)
		h := b.project(b.norm1(hidden), 0, 3).heads(b, -1, n)
		if promptRows.dense {
			hidden = b.rest(hidden, nn.MergeHeads(nn.Attend(h[0], h[1], h[2], promptRows.masked)))
			continue
		}
		part := func(x graph.Node) []graph.Node { return x.Split(2, promptRows.prefix, promptRows.packing.rows()) }
		q, k, v := part(h[0]), part(h[1]), part(h[2])
		hidden = b.rest(hidden, nn.MergeHeads(graph.Concat(2, nn.Attend(q[0], k[0], v[0], promptRows.causal),
			promptRows.attendShared(b, q[1], k[0], v[0], k[1], v[1], promptRows.masked))))
	}

	block := tw.block(t.Layers - 1)
	normed := block.norm1(hidden)
	kv := block.project(normed, 1, 3).heads(block, -1, n)
	read := promptRows.packing.last(promptRows.prefix)
	pick := func(x graph.Node, index []int) graph.Node { // the indexed rows of every image
		return x.Reshape(-1, n, t.Width).Gather(1, tw.graph.Ints(index...)).Reshape(-1, t.Width)
	}
	var attended graph.Node
	if promptRows.dense {
		q := block.project(pick(normed, read), 0, 1).heads(block, -1, classes)[0]
		attended = nn.MergeHeads(nn.Attend(q, kv[0], kv[1], suffixes.pairsOfLast(tw.graph, promptRows.packing, 0,
			promptRows.prefix)))
	} else {
		q := block.project(pick(normed, promptRows.queries(promptRows.prefix)), 0, 1).heads(block, -1,
			len(promptRows.take))[0]
		k, v := kv[0].Split(2, promptRows.prefix, promptRows.packing.rows()), kv[1].Split(2, promptRows.prefix,
			promptRows.packing.rows())
		out := promptRows.attendShared(block, q, k[0], v[0], k[1], v[1], promptRows.maskOfLast(tw.graph))
		if !isIota(promptRows.place) {
			out = out.Gather(2, tw.graph.Ints(promptRows.place...))
		}
		attended = nn.MergeHeads(out)
	}

	return t.head(tw, block.rest(pick(hidden, read), attended))
}
