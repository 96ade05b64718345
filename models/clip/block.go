package clip

import (
	"fmt"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// block is one residual attention block: x += attn(ln_1(x)); x += mlp(ln_2(x)), on rows [N,width].
type block struct {
	tower
	index int
	name  string
}

func (t tower) block(i int) block {
	return block{t, i, fmt.Sprintf("%stransformer.resblocks.%d", t.prefix, i)}
}

func (b block) norm1(x graph.Node) graph.Node { return b.norm(x, b.name+".ln_1") }

// rest returns the part of the block after the attention: its output projection, the residual sum with x, and the MLP.
func (b block) rest(x, attended graph.Node) graph.Node {
	y := nn.Residual(x, b.changed(b.linear(attended, ".attn.out_proj", b.width, b.width), attended, 1, b.width, Out))
	return b.parallel(nn.Residual(y, b.feedForward(b.norm(y, b.name+".ln_2"))), x)
}

func (b block) affine(name string, out, in int) (w, bias graph.Node) {
	return b.weights.Node(b.graph, b.name+name+".weight", out, in), b.weights.Node(b.graph, b.name+name+".bias", out)
}

func (b block) linear(x graph.Node, name string, out, in int) graph.Node {
	w, bias := b.affine(name, out, in)
	return nn.Linear(x, w, bias, 1, 1)
}

// projected holds queries, keys and values of rows, or some of them: one node [N, count·width] or several [N,width].
type projected struct {
	nodes []graph.Node
	count int // how many of the three
}

// project returns the projections from..to of (query, key, value).
func (b block) project(hidden graph.Node, from, to int) projected {
	out := projected{count: to - from}
	if b.weights.Has(b.name + ".attn.in_proj_weight") {
		w := b.weights.Node(b.graph, b.name+".attn.in_proj_weight", 3*b.width, b.width)
		bias := b.weights.Node(b.graph, b.name+".attn.in_proj_bias", 3*b.width)
		if out.count < 3 {
			w, bias = w.Slice(0, from*b.width, to*b.width), bias.Slice(0, from*b.width, to*b.width)
		}
		out.nodes = []graph.Node{b.changed(nn.Linear(hidden, w, bias, 1, 1), hidden, 1, b.width,
			BlockMaps()[from:to]...)}
		return out
	}

	for i, name := range []string{".attn.q_proj", ".attn.k_proj", ".attn.v_proj"}[from:to] {
		y := b.linear(hidden, name, b.width, b.width)
		out.nodes = append(out.nodes, b.changed(y, hidden, 1, b.width, BlockMaps()[from+i]))
	}

	return out
}

// joined returns the projections as one node.
func (p projected) joined() graph.Node { return graph.Concat(1, p.nodes...) }

// split splits the rows into consecutive groups.
func (p projected) split(sizes []int) []projected {
	if len(sizes) == 1 {
		return []projected{p}
	}

	out := make([]projected, len(sizes))
	for _, n := range p.nodes {
		for i, part := range n.Split(0, sizes...) {
			out[i].nodes, out[i].count = append(out[i].nodes, part), p.count
		}
	}

	return out
}

// followed appends the rows of q to those of p.
func (p projected) followed(q projected) projected {
	out := projected{count: p.count}
	for i := range p.nodes {
		out.nodes = append(out.nodes, graph.Concat(0, p.nodes[i], q.nodes[i]))
	}
	return out
}

// heads returns each projection as [batch,heads,n,width/heads].
func (p projected) heads(b block, batch, n int) []graph.Node {
	var out []graph.Node
	for _, x := range p.nodes {
		out = append(out, nn.SplitHeads(x, p.count/len(p.nodes), batch, n, b.heads)...)
	}
	return out
}

// postNorm is full for a block of BERT: x = ln_1(x + attn(x)); x = ln_2(x + mlp(x)).
func (b block) postNorm(x, mask graph.Node, n int) graph.Node {
	h := b.project(x, 0, 3).heads(b, -1, n)
	attended := nn.MergeHeads(nn.Attend(h[0], h[1], h[2], mask))
	y := b.norm(x.Add(b.linear(attended, ".attn.out_proj", b.width, b.width)), b.name+".ln_1")
	return b.norm(y.Add(b.feedForward(y)), b.name+".ln_2")
}

// full returns the block on sequences of n rows with a mask [n,n], or none.
func (b block) full(hidden, mask graph.Node, n int) graph.Node {
	rows := func() graph.Node { return b.project(b.norm1(hidden), 0, 3).joined() }
	switch {
	case mask.OK():
	case b.graph.FusesAttention():
		return b.rest(hidden, nn.FusedAttention(rows(), n, b.heads))
	case b.graph.HasKernels(graph.CPUKernels) && b.kernels() && n <= graph.MaxSequenceRows:
		return b.rest(hidden, nn.SequenceAttention(rows(), n, b.heads))
	}

	h := b.project(b.norm1(hidden), 0, 3).heads(b, -1, n)
	return b.rest(hidden, nn.MergeHeads(nn.Attend(h[0], h[1], h[2], mask)))
}
