package clip

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Suffixes are the parts of class prompts that no learning touches: for each class the tokens [name . EOT], and the
// tokens SOS and padding that every prompt shares. Build it with NewSuffixes; it may be used by many graphs at once.
type Suffixes struct {
	Names []string
	IDs   [][]int // per class, the last being EOT, behind "." where a prompt may stand in front of it

	width    int
	rows     [][]float32 // per class, embeddings of IDs
	sos, pad []float32   // sos is nil where no token starts a text
	padID    int
	behind   int // tokens behind every name: the full stop, where it has one, and EOT
	mu       sync.Mutex
	memo     map[string]*tensor.Tensor // constants by what they depend on, so that graphs can intern them
}

// PadID is the token that CLIP's tokenizer fills sequences with.
const PadID = 0

// Special are the tokens around texts: SOS starts them, -1 where none does, and Pad fills them up. NoStop tells that
// the tokenizer drops the full stop.
type Special struct {
	SOS, Pad int
	NoStop   bool
}

// NewSuffixes is SuffixesOf for CLIP's tokenizer.
func NewSuffixes(names []string, ids [][]int, sos, width int, embed func(ids []int) ([]float32, error)) (*Suffixes,
	error) {
	return SuffixesOf(names, ids, Special{SOS: sos, Pad: PadID}, width, embed)
}

// SuffixesOf looks up the embeddings of all classes. ids[c] is [name . EOT] of names[c]; embed gives the rows of the
// token embedding, width numbers for each id.
func SuffixesOf(names []string, ids [][]int, special Special, width int,
	embed func(ids []int) ([]float32, error)) (*Suffixes, error) {
	if len(names) == 0 || len(names) != len(ids) {
		return nil, fmt.Errorf("%d class names with %d token lists", len(names), len(ids))
	}
	s := &Suffixes{Names: names, IDs: ids, width: width, padID: special.Pad, behind: 2, memo: map[string]*tensor.Tensor{}}
	if special.NoStop {
		s.behind = 1
	}
	for c, list := range ids {
		if len(list) < s.behind {
			return nil, fmt.Errorf("class %q has tokens %v, needs a name and the end token", names[c], list)
		}
		rows, err := lookUp(embed, list, width)
		if err != nil {
			return nil, fmt.Errorf("class %q: %w", names[c], err)
		}
		s.rows = append(s.rows, rows)
	}
	var err error
	if s.pad, err = lookUp(embed, []int{special.Pad}, width); err == nil && special.SOS >= 0 {
		s.sos, err = lookUp(embed, []int{special.SOS}, width)
	}
	return s, err
}

// begin is how many tokens start a text.
func (s *Suffixes) begin() int {
	if s.sos == nil {
		return 0
	}
	return 1
}

func lookUp(embed func([]int) ([]float32, error), ids []int, width int) ([]float32, error) {
	rows, err := embed(ids)
	if err != nil {
		return nil, fmt.Errorf("token embedding: %w", err)
	}
	if len(rows) != len(ids)*width {
		return nil, fmt.Errorf("token embedding: %d numbers for %d tokens of width %d", len(rows), len(ids), width)
	}
	return rows, nil
}

// Fits tells whether every class stays inside the context of the tower with a prompt of so many tokens, read after
// positions behind EOT.
func (s *Suffixes) Fits(a TextArch, prompt, after int) error {
	for c, ids := range s.IDs {
		if n := s.begin() + prompt + len(ids) + after; n > a.Context {
			return fmt.Errorf("class %q (%d tokens with the full stop and the end token) behind a prompt of %d "+
				"tokens needs %d positions, the text tower has %d: shorten the name or the prompt",
				s.Names[c], len(ids), prompt, n, a.Context)
		}
	}
	return nil
}

func (s *Suffixes) packing(after int) packing {
	n := make([]int, len(s.IDs))
	for c, ids := range s.IDs {
		n[c] = len(ids) + after
	}
	return pack(n)
}

// constant gives the tensor under key, made once.
func (s *Suffixes) constant(g *graph.Graph, key string, make func() *tensor.Tensor) graph.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.memo[key]
	if !ok {
		t = make()
		s.memo[key] = t
	}
	return g.Const(t)
}

// start is the embedding [1,width] of SOS.
func (s *Suffixes) start(g *graph.Graph) graph.Node {
	return s.constant(g, "sos", func() *tensor.Tensor { return tensor.Of(s.sos, 1, s.width) })
}

// token is the embedding of place j of class c, where places behind EOT are padding.
func (s *Suffixes) token(c, j int) []float32 {
	if j >= len(s.IDs[c]) {
		return s.pad
	}
	return s.rows[c][j*s.width : (j+1)*s.width]
}

// packed is the embeddings [rows,width] of all suffixes in p's order; rows that fill up are zero.
func (s *Suffixes) packed(g *graph.Graph, p packing, after int) graph.Node {
	return s.constant(g, fmt.Sprintf("rows+%d", after), func() *tensor.Tensor {
		t := tensor.New(p.rows(), s.width)
		class, place := p.owner()
		for i, c := range class {
			if c >= 0 {
				copy(t.Row(i).Data, s.token(c, place[i]))
			}
		}
		return t
	})
}

// mask [blocks,queries,size] lets the query at each of rows see its own class so far. rows lists the same number of
// queries for every block.
func (s *Suffixes) mask(g *graph.Graph, key string, p packing, rows []int) graph.Node {
	return s.constant(g, key, func() *tensor.Tensor {
		queries := len(rows) / p.blocks
		t := tensor.New(p.blocks, queries, p.size)
		class, place := p.owner()
		for i, r := range rows {
			first := i / queries * p.size
			for j := range p.size {
				if k := first + j; class[r] < 0 || class[k] != class[r] || place[k] > place[r] {
					t.Data[i*p.size+j] = nn.Masked
				}
			}
		}
		return t
	})
}

// pairs is the mask [rows,rows] over all rows of a prompt, prefix first: the prefix is causal, and a suffix row sees
// the prefix and its own class so far.
func (s *Suffixes) pairs(g *graph.Graph, p packing, after, prefix int) graph.Node {
	return s.constant(g, fmt.Sprintf("pairs+%d/%d", after, prefix), func() *tensor.Tensor {
		return pairMask(p, prefix)
	})
}

// pairsOfLast is the rows of pairs, [classes,rows], that the features are read from.
func (s *Suffixes) pairsOfLast(g *graph.Graph, p packing, after, prefix int) graph.Node {
	return s.constant(g, fmt.Sprintf("pairs of last+%d/%d", after, prefix), func() *tensor.Tensor {
		rows := p.last()
		for i := range rows {
			rows[i] += prefix
		}
		return pairMask(p, prefix).Rows(rows)
	})
}

func pairMask(p packing, prefix int) *tensor.Tensor {
	n := prefix + p.rows()
	t := tensor.New(n, n)
	class, place := p.owner()
	for i := range n {
		for j := range n {
			switch a, b := i-prefix, j-prefix; {
			case a < 0 && j > i, a >= 0 && b >= 0 && (class[a] < 0 || class[a] != class[b] || place[b] > place[a]):
				t.Data[i*n+j] = nn.Masked
			}
		}
	}
	return t
}

func iota(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func isIota(v []int) bool { return slices.Equal(v, iota(len(v))) }
