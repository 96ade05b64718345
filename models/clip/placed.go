package clip

import (
	"fmt"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// placed is a prompt with the class name in front of it or in its middle, in the plain form: sequences are gathered from
// a table of the prompt's rows and the constant rows. For an odd number of prompt tokens the second half is longer, as in
// CoOp's code.
func (t Text) placed(g *graph.Graph, w Weights, s *Suffixes, p Prompt) graph.Node {
	n := p.Ctx.Dim(0)
	half := n / 2
	if p.Class == Front {
		half = 0
	}
	longest := 0
	for _, ids := range s.IDs {
		longest = max(longest, 1+n+len(ids)+p.After)
	}
	// The table: prompt, SOS, padding, then every class's suffix.
	table := s.constant(g, "table", func() *tensor.Tensor {
		data := append(append([]float32{}, s.sos...), s.pad...)
		for _, rows := range s.rows {
			data = append(data, rows...)
		}
		return tensor.Of(data, len(data)/s.width, s.width)
	})
	var index, read []int
	own := n + 2
	for _, ids := range s.IDs {
		name := len(ids) - 2
		seq := []int{n}
		for i := range half {
			seq = append(seq, i)
		}
		for i := range name {
			seq = append(seq, own+i)
		}
		for i := half; i < n; i++ {
			seq = append(seq, i)
		}
		seq = append(seq, own+name, own+name+1)
		read = append(read, len(seq)-1+p.After)
		for len(seq) < longest {
			seq = append(seq, n+1)
		}
		index = append(index, seq...)
		own += len(ids)
	}
	emb := graph.Concat(0, p.Ctx, table).Rows(g.Ints(index...)).Reshape(len(s.IDs), longest, t.Width)
	if g.Err() != nil {
		return g.Fail("%w", fmt.Errorf("text tower: class position %s", p.Class))
	}
	return t.Plain(w, emb, g.Ints(read...))
}
