package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unigram finds the most probable segmentation of a text (Kudo, Subword Regularization, ACL 2018), as SentencePiece
// does.
type unigram struct {
	ids      map[string]int
	scores   []float64
	pieces   trie
	unknown  int // -1 means none
	fallback bool
	worst    float64
}

// unknownPenalty is the log-probability of the least probable token minus that of an unknown character.
const unknownPenalty = 10

// scored is a token with the logarithm of its probability.
type scored struct {
	token string
	score float64
}

func (s *scored) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}

	var number json.Number
	if len(list) != 2 || json.Unmarshal(list[0], &s.token) != nil || json.Unmarshal(list[1], &number) != nil {
		return fmt.Errorf("vocab holds %.60s where a token and its score are wanted", data)
	}

	var err error
	s.score, err = score(number.String())
	return err
}

// score parses a number as Hugging Face's library does: its digits as an integer, divided by a power of ten, which may
// differ in the last place. This decides between segmentations of equal probability.
func score(text string) (float64, error) {
	exact, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, err
	}

	whole, fraction, ok := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	digits, err := strconv.ParseUint(whole+fraction, 10, 64)
	if !ok || err != nil || strings.ContainsAny(fraction, "eE") {
		return exact, nil
	}

	return math.Copysign(float64(digits)/math.Pow10(len(fraction)), exact), nil
}

func newUnigram(list []scored, unknown *int, fallback bool) (*unigram, error) {
	if len(list) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}

	unigram := &unigram{ids: make(map[string]int, len(list)), unknown: -1, fallback: fallback, worst: math.Inf(1)}
	if unknown != nil {
		if unigram.unknown = *unknown; unigram.unknown < 0 || unigram.unknown >= len(list) {
			return nil, fmt.Errorf("unk_id %d is outside the vocabulary of %d tokens", unigram.unknown, len(list))
		}
	}

	total := 0
	for id, p := range list {
		if total += len(p.token); total > maxFile {
			return nil, fmt.Errorf("tokens of more than %d bytes together", maxFile)
		}
		unigram.ids[p.token], unigram.scores, unigram.worst = id, append(unigram.scores, p.score), min(unigram.worst,
			p.score)
	}

	for token, id := range unigram.ids {
		unigram.pieces.add(token, id)
	}

	return unigram, nil
}

// trie finds the tokens at the start of a text. Nodes are numbered; 0 is the root.
type trie struct {
	next map[trieEdge]int32
	at   []int32 // token that ends at each node, or -1
}

type trieEdge struct {
	node int32
	by   byte
}

func (t *trie) add(token string, id int) {
	if t.next == nil {
		t.next, t.at = map[trieEdge]int32{}, []int32{-1}
	}

	node := int32(0)
	for i := range len(token) {
		to, ok := t.next[trieEdge{node, token[i]}]
		if !ok {
			to = int32(len(t.at))
			t.next[trieEdge{node, token[i]}], t.at = to, append(t.at, -1)
		}
		node = to
	}

	if token != "" {
		t.at[node] = int32(id)
	}
}

// best is the best segmentation up to a position: its score, the start of its last token, and that token.
type best struct {
	score float64
	start int // -1 if there is none
	id    int
}

func (u *unigram) encode(text string) ([]int, error) {
	ends := make([]best, len(text)+1)
	for i := range ends {
		ends[i].start = -1
	}

	reach := func(from, to, id int, score float64) {
		if score += ends[from].score; ends[to].start < 0 || score > ends[to].score {
			ends[to] = best{score, from, id}
		}
	}

	for from := 0; from < len(text); {
		_, width := utf8.DecodeRuneInString(text[from:])
		known := false
		node := int32(0)
		for to := from; to < len(text); to++ {
			var ok bool
			if node, ok = u.pieces.next[trieEdge{node, text[to]}]; !ok {
				break
			}
			if id := u.pieces.at[node]; id >= 0 {
				reach(from, to+1, int(id), u.scores[id])
				known = known || to+1 == from+width
			}
		}

		if !known {
			if u.unknown < 0 {
				return nil, fmt.Errorf("character %q has no token, and the vocabulary none for unknown ones",
					text[from:from+width])
			}
			reach(from, from+width, u.unknown, u.worst-unknownPenalty)
		}

		from += width
	}

	var cuts []string // in reverse; adjacent unknown characters are one
	last := false
	for to := len(text); to > 0; to = ends[to].start {
		e := ends[to]
		if unknown := e.id == u.unknown; unknown && last {
			cuts[len(cuts)-1] = text[e.start:to] + cuts[len(cuts)-1]
		} else {
			cuts, last = append(cuts, text[e.start:to]), unknown
		}
	}

	var out []int
	for i := len(cuts) - 1; i >= 0; i-- {
		some := spelled(u.ids, cuts[i], u.fallback)
		if some == nil {
			some = []int{u.unknown}
		}
		out = append(out, some...)
	}

	return out, nil
}
