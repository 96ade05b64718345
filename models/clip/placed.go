package clip

import (
	"slices"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// placed computes a prompt in the plain form.
func (t Text) placed(tw tower, s *Suffixes, p Prompt) graph.Node {
	emb, _, read := s.sequences(tw.graph, p, t.length(slices.Max(s.Lengths(p))))
	if tw.graph.Err() != nil {
		return emb
	}

	return t.plain(tw, emb, tw.graph.Ints(read...))
}

// Lengths returns the number of positions of each class's sequence with a prompt, up to the position that is read.
func (s *Suffixes) Lengths(p Prompt) []int {
	return convert.Slice(s.IDs, func(ids []int) int { return s.begin() + p.length() + len(ids) + p.ReadOffset })
}

// Sequences assembles whole sequences for a tower that accepts nothing else: embeddings [C,length,width] without
// positions, padded, the tokens that they belong to, and the position at which each sequence is read. Tokens are -1 for
// SOS and for prompt positions. If an odd number of prompt tokens surrounds a name, the second half is longer, as in
// CoOp's code. length must be at least the largest of Lengths.
func (s *Suffixes) Sequences(p Prompt, length int) (emb graph.Node, tokens [][]int, read []int) {
	return s.sequences(p.Ctx.Graph(), p, length)
}

func (s *Suffixes) sequences(g *graph.Graph, given Prompt, length int) (emb graph.Node, tokens [][]int, read []int) {
	n := given.length()
	table := s.constant(g, "table", func() *tensor.Tensor {
		data := append(slices.Clone(s.pad), s.sos...)
		for _, rows := range s.rows {
			data = append(data, rows...)
		}
		return tensor.Of(data, len(data)/s.width, s.width)
	})

	// Rows of the table: prompts, padding, SOS if there is one, then every class's suffix.
	learned, step := n, 0

	switch {
	case given.PerClass:
		learned, step = n*len(s.IDs), n
		table = graph.Concat(0, given.Ctx.Reshape(learned, s.width), table)
	case given.Ctx.OK():
		table = graph.Concat(0, given.Ctx, table)
	}

	half := n
	switch given.Class {
	case Middle:
		half = n / 2
	case Front:
		half = 0
	}

	var index []int
	own := learned + 1 + s.begin()
	for c, ids := range s.IDs {
		name := max(0, len(ids)-s.behind)
		var seq, list []int
		if s.sos != nil {
			seq, list = []int{learned + 1}, []int{-1}
		}

		prompt := func(from, to int) {
			for i := from; i < to; i++ {
				seq, list = append(seq, c*step+i), append(list, -1)
			}
		}

		prompt(0, half)
		for i := range name {
			seq, list = append(seq, own+i), append(list, ids[i])
		}

		prompt(half, n)
		for i := name; i < len(ids); i++ {
			seq, list = append(seq, own+i), append(list, ids[i])
		}

		read = append(read, len(seq)-1+given.ReadOffset)
		for len(seq) < length {
			seq, list = append(seq, learned), append(list, s.padID)
		}

		index, tokens = append(index, seq...), append(tokens, list)
		own += len(ids)
	}

	return table.Rows(g.Ints(index...)).Reshape(len(s.IDs), length, s.width), tokens, read
}
