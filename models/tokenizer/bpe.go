package tokenizer

import (
	"container/heap"
	"fmt"
	"strings"
)

// model converts a piece to ids.
type model interface {
	encode(piece string) ([]int, error)
}

// bpe is byte-pair encoding (Sennrich et al. 2016) over characters, as in tokenizer.json.
type bpe struct {
	ids            map[string]int
	join           map[[2]int]merge
	whole          map[string]int // pieces that are tokens without any merging
	unknown        int            // -1 means none: characters without a token are dropped
	strict         bool           // characters without a token are an error
	fuse, fallback bool
	prefix, suffix string
}

func (f hfModel) bpe() (*bpe, error) {
	bpe := &bpe{ids: f.Vocab, join: make(map[[2]int]merge, len(f.Merges)), unknown: -1, fuse: f.FuseUnknown,
		fallback: f.ByteFallback, prefix: f.Prefix, suffix: f.EndOfWord}
	if f.IgnoreMerges {
		bpe.whole = bpe.ids
	}

	if f.Dropout > 0 {
		return nil, fmt.Errorf("BPE with dropout %g has random results", f.Dropout)
	}

	if f.Unknown != "" {
		var err error
		if bpe.unknown, err = f.unknownID(); err != nil {
			return nil, err
		}
	}

	var made []byte
	for i, m := range f.Merges {
		sides, err := parts(bpe.ids, i, m)
		if err != nil {
			return nil, err
		}
		made = append(append(made[:0], m.left...), strings.TrimPrefix(m.right, bpe.prefix)...)
		id, ok := bpe.ids[string(made)]
		if !ok {
			return nil, fmt.Errorf("merge %d makes %s, which is not a token: vocabulary and merges do not belong "+
				"together", i+1, quote(string(made)))
		}
		bpe.join[sides] = merge{rank: i, id: id}
	}

	return bpe, nil
}

// spelled returns the id of a text that is a token or, with fallback, the ids of <0x00> to <0xFF> for its bytes; nil if
// one is missing.
func spelled(ids map[string]int, text string, fallback bool) (out []int) {
	if id, ok := ids[text]; ok {
		return []int{id}
	}

	for i := 0; fallback && i < len(text); i++ {
		id, ok := ids[fmt.Sprintf("<0x%02X>", text[i])]
		if !ok {
			return nil
		}
		out = append(out, id)
	}

	return out
}

func (b *bpe) encode(s string) ([]int, error) {
	if id, ok := b.whole[s]; ok {
		return []int{id}, nil
	}
	ids, err := b.symbols(s)
	return b.merge(ids), err
}

// symbols returns the tokens of single characters.
func (b *bpe) symbols(s string) (out []int, err error) {
	pending := false // the last of out is an unknown character
	for i, r := range s {
		character := string(r)
		last := i+len(character) == len(s)
		if i > 0 {
			character = b.prefix + character
		}

		if last {
			character += b.suffix
		}

		switch some := spelled(b.ids, character, b.fallback); {
		case some != nil:
			out, pending = append(out, some...), false
		case b.unknown >= 0 && !(pending && b.fuse):
			out, pending = append(out, b.unknown), true
		case b.strict:
			return nil, fmt.Errorf("the vocabulary has no token for %s", quote(character))
		}
	}

	return out, nil
}

// candidate is a pair that can be joined. The lowest rank comes first, and among equal ranks the first in the text.
type candidate struct{ rank, at, id int }

type queue []candidate

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}

// merge joins pairs by rank, each in time logarithmic in the length. Symbols that were joined to their left neighbour
// are -1.
func (b *bpe) merge(ids []int) []int {
	n := len(ids)
	next, before := make([]int, n), make([]int, n)
	for i := range ids {
		next[i], before[i] = i+1, i-1
	}

	var queue queue
	look := func(at int) {
		if at >= 0 && next[at] < n {
			if m, ok := b.join[[2]int{ids[at], ids[next[at]]}]; ok {
				heap.Push(&queue, candidate{m.rank, at, m.id})
			}
		}
	}

	for i := range ids {
		look(i)
	}

	for queue.Len() > 0 {
		candidate := heap.Pop(&queue).(candidate)
		if ids[candidate.at] < 0 || next[candidate.at] >= n {
			continue
		}

		right := next[candidate.at]
		if m, ok := b.join[[2]int{ids[candidate.at], ids[right]}]; !ok || m.id != candidate.id {
			continue // one of the symbols has changed
		}

		ids[candidate.at], ids[right], next[candidate.at] = candidate.id, -1, next[right]
		if next[right] < n {
			before[next[right]] = candidate.at
		}

		look(before[candidate.at])
		look(candidate.at)
	}

	out := ids[:0]
	for _, id := range ids {
		if id >= 0 {
			out = append(out, id)
		}
	}

	return out
}
