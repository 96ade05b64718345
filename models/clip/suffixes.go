package clip

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Suffixes are the constant parts of class prompts: for each class the tokens [name . EOT], and the tokens SOS and
// padding that all prompts share. NewSuffixes makes them; many graphs may use them concurrently.
type Suffixes struct {
	Names []string
	IDs   [][]int // of each class; the last is EOT, after "." if a prompt may precede it

	width    int
	rows     [][]float32 // of each class, embeddings of IDs
	sos, pad []float32   // sos is nil if no token starts a text
	padID    int
	behind   int // tokens after every name: the full stop, if it has a token, and EOT
	mu       sync.Mutex
	memo     map[string]*tensor.Tensor // constants by what they depend on, so that graphs can intern them
}

// SpecialTokens holds the special tokens of texts: SOS is the start token, or -1 if there is none, and Pad the padding
// token. NoStop means that the tokenizer drops the full stop.
type SpecialTokens struct {
	SOS, Pad int
	NoStop   bool
}

// NewSuffixes looks up the embeddings of all classes. ids[c] is [name . EOT] of names[c]; embed returns the rows of the
// token embedding, width numbers for each id.
func NewSuffixes(names []string, ids [][]int, special SpecialTokens, width int,
	embed func(ids []int) ([]float32, error)) (*Suffixes, error) {
	if len(names) == 0 || len(names) != len(ids) {
		return nil, fmt.Errorf("%d class names with %d token lists", len(names), len(ids))
	}

	suffixes := &Suffixes{Names: names, IDs: ids, width: width, padID: special.Pad, behind: 2,
		memo: map[string]*tensor.Tensor{}}
	if special.NoStop {
		suffixes.behind = 1
	}

	for c, list := range ids {
		if len(list) < suffixes.behind {
			return nil, fmt.Errorf("class %q has tokens %v, needs a name and the end token", names[c], list)
		}
		rows, err := lookUp(embed, list, width)
		if err != nil {
			return nil, fmt.Errorf("class %q: %w", names[c], err)
		}
		suffixes.rows = append(suffixes.rows, rows)
	}

	var err error
	if suffixes.pad, err = lookUp(embed, []int{special.Pad}, width); err == nil && special.SOS >= 0 {
		suffixes.sos, err = lookUp(embed, []int{special.SOS}, width)
	}

	return suffixes, err
}

// begin returns the number of tokens that start a text.
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

// LengthError is the error of a prompt with more tokens than fit before a class.
type LengthError struct {
	Tokens int
	error
}

// CheckLength returns a LengthError if a class exceeds the context of the tower with a prompt of the given number of
// tokens, read after positions behind EOT.
func (s *Suffixes) CheckLength(arch TextArch, prompt, after int) error {
	longest := 0 // the class with most tokens
	for c, ids := range s.IDs {
		if len(ids) > len(s.IDs[longest]) {
			longest = c
		}
	}

	if len(s.IDs) == 0 {
		return nil
	}

	name := len(s.IDs[longest])
	most := arch.Context - s.begin() - name - after
	if prompt <= most {
		return nil
	}

	advice := "shorten the name"
	if most > 0 {
		advice = fmt.Sprintf("lower the prompt's tokens to %d, or shorten the name", most)
	}

	return LengthError{prompt, fmt.Errorf("class %q (%d tokens with the full stop and the end token) after a prompt "+
		"of %d tokens needs %d positions, the text tower has %d: %s", s.Names[longest], name, prompt,
		arch.Context-most+prompt, arch.Context, advice)}
}

func (s *Suffixes) packing(after int) packing {
	n := convert.Slice(s.IDs, func(ids []int) int { return len(ids) + after })
	return pack(n)
}

// constant returns the tensor under key, computed once.
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

// start returns the embedding [1,width] of SOS.
func (s *Suffixes) start(g *graph.Graph) graph.Node {
	return s.constant(g, "sos", func() *tensor.Tensor { return tensor.Of(s.sos, 1, s.width) })
}

// token returns the embedding at position j of class c; positions after EOT are padding.
func (s *Suffixes) token(c, j int) []float32 {
	if j >= len(s.IDs[c]) {
		return s.pad
	}
	return s.rows[c][j*s.width : (j+1)*s.width]
}

// packed returns the embeddings [rows,width] of all suffixes in p's order; padding rows are zero.
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

// mask returns [blocks,queries,size], in which the query at each of rows attends to its own class up to itself. rows
// lists the same number of queries for every block.
func (s *Suffixes) mask(g *graph.Graph, key string, p packing, rows []int) graph.Node {
	return s.constant(g, key, func() *tensor.Tensor {
		queries := len(rows) / p.blocks
		t := tensor.New(p.blocks, queries, p.size)
		class, place := p.owner()
		for i, r := range rows {
			first := i / queries * p.size
			for j := range p.size {
				if k := first + j; class[r] < 0 || class[k] != class[r] || place[k] > place[r] {
					t.Data[i*p.size+j] = nn.MaskValue
				}
			}
		}
		return t
	})
}

// pairs returns the mask [rows,rows] over all rows of a prompt, prefix first: the prefix is causal, and a suffix row
// attends to the prefix and to its own class up to itself.
func (s *Suffixes) pairs(g *graph.Graph, p packing, after, prefix int) graph.Node {
	return s.constant(g, fmt.Sprintf("pairs+%d/%d", after, prefix), func() *tensor.Tensor {
		return pairMask(p, prefix)
	})
}

// pairsOfLast returns the rows of pairs, [classes,rows], from which the features are read.
func (s *Suffixes) pairsOfLast(g *graph.Graph, p packing, after, prefix int) graph.Node {
	return s.constant(g, fmt.Sprintf("pairs of last+%d/%d", after, prefix), func() *tensor.Tensor {
		return pairMask(p, prefix).Rows(p.last(prefix))
	})
}

func pairMask(p packing, prefix int) *tensor.Tensor {
	n := prefix + p.rows()
	mask := tensor.New(n, n)
	class, place := p.owner()
	for i := range n {
		for j := range n {
			switch a, b := i-prefix, j-prefix; {
			case a < 0 && j > i, a >= 0 && b >= 0 && (class[a] < 0 || class[a] != class[b] || place[b] > place[a]):
				mask.Data[i*n+j] = nn.MaskValue
			}
		}
	}

	return mask
}

func isIota(v []int) bool { return slices.Equal(v, tensor.Indices(len(v))) }
