package clip

import (
	"math"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Plain is the text tower as published, and the reference for Prompts. It maps token embeddings [C,L,width] without
// positions, L at most the context, and the position [C] (int64) that is read, to features [C,EmbedDim], which are not
// normalised. C may be symbolic. In a causal tower that is read at the end token, tokens after the read position have
// no influence; a bidirectional tower needs sequences of the full context, padded.
func (t Text) Plain(weights Weights, emb, read graph.Node) graph.Node {
	g := emb.Graph()
	if g.Err() != nil {
		return g.Fail("")
	}

	if err := t.Check(); err != nil {
		return g.Fail("%w", err)
	}

	if emb.Rank() != 3 || emb.Dim(1) > t.Context || emb.Dim(2) != t.Width {
		return g.Fail("text tower: embeddings %v, must be [classes, at most %d, %d]", emb.Shape(), t.Context, t.Width)
	}

	return t.plain(t.tower(g, weights), emb, read)
}

func (t Text) plain(tw tower, emb, read graph.Node) graph.Node {
	if t.Box != nil {
		return t.Box(emb, read)
	}

	n := emb.Dim(1)
	hidden := emb.Add(t.positions(tw, n)).Reshape(-1, t.Width)
	if t.PostNorm {
		hidden = tw.norm(hidden, "ln_pre")
	}

	mask := t.mask(read, n)
	for i := range t.Layers {
		if b := tw.block(i); t.PostNorm {
			hidden = b.postNorm(hidden, mask, n)
		} else {
			hidden = b.full(hidden, mask, n)
		}
	}

	return t.head(tw, t.pooled(hidden, emb, read))
}

// Sequences is Plain for constant token sequences, with embeddings from embed: the features [len(ids),EmbedDim] of
// whole texts [SOS ... EOT], each read at its last token.
func (t Text) Sequences(g *graph.Graph, weights Weights, ids [][]int,
	embed func(ids []int) ([]float32, error)) graph.Node {
	if len(ids) == 0 {
		return g.Fail("text tower: no sequences")
	}

	longest := 0
	for i, s := range ids {
		if len(s) == 0 || len(s) > t.Context {
			return g.Fail("text tower: sequence %d has %d tokens, must have 1 to %d", i, len(s), t.Context)
		}
		longest = max(longest, len(s))
	}

	longest = t.length(longest)
	data := make([]float32, 0, len(ids)*longest*t.Width)
	last := make([]int, len(ids))
	for i, s := range ids {
		rows, err := lookUp(embed, append(slices.Clone(s), slices.Repeat([]int{t.Pad}, longest-len(s))...), t.Width)
		if err != nil {
			return g.Fail("%w", err)
		}
		data = append(data, rows...)
		last[i] = len(s) - 1
	}

	return t.Plain(weights, g.Const(tensor.Of(data, len(ids), longest, t.Width)), g.Ints(last...))
}

// head computes features [C,EmbedDim] from rows [C,width].
func (t Text) head(tw tower, rows graph.Node) graph.Node {
	if !t.PostNorm {
		rows = tw.norm(rows, "ln_final")
	}

	if t.Pooler {
		w, bias := tw.weights.Node(tw.graph, "pooler.weight", t.Width, t.Width), tw.weights.Node(tw.graph,
			"pooler.bias", t.Width)
		rows = nn.Linear(rows, w, bias, 1, 1).Tanh()
	}

	if t.Hidden > 0 {
		a := nn.Linear(rows, tw.weights.Node(tw.graph, "text_hidden.weight", t.Hidden, t.Width), graph.Node{},
			math.Sqrt2/2, 1)
		rows = a.Add(a.Mul(a.Erf())).MulScalar(math.Sqrt2 / 2)
	}

	if t.NoProjection {
		return rows
	}

	y := tw.project(rows, "text_projection", "text_projection.weight", t.EmbedDim)
	if t.ProjectionBias {
		y = y.Add(tw.weights.Node(tw.graph, "text_projection.bias", t.EmbedDim))
	}

	return y
}

// positions returns the first n position embeddings, [n,width].
func (t Text) positions(tw tower, n int) graph.Node {
	p := tw.weights.Node(tw.graph, "positional_embedding", t.Context, t.Width)
	if n == t.Context {
		return p
	}
	return p.Slice(0, 0, n)
}

// rowIndex returns the row of position read[c] of sequence c among the rows of emb [C,n,w].
func rowIndex(emb, read graph.Node, n int) graph.Node {
	g := emb.Graph()
	if c := emb.Shape()[0]; c.Static() {
		start := make([]int, c.N)
		for i := range start {
			start[i] = i * n
		}
		return read.Add(g.Ints(start...))
	}

	zero, one := g.Ints(0).Squeeze(0), g.Ints(1).Squeeze(0)
	count := emb.ShapeOf().Gather(0, zero)
	return read.Add(g.Apply(graph.Standard, "Range", nil, zero, count, one).Mul(g.Ints(n)))
}

// causal returns the mask [n,n] with which each position attends to itself and to earlier positions.
func causal(n int) *tensor.Tensor {
	m := tensor.New(n, n)
	for i := range n {
		for j := i + 1; j < n; j++ {
			m.Data[i*n+j] = nn.MaskValue
		}
	}
	return m
}
