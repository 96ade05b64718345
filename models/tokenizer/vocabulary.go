package tokenizer

import (
	"errors"
	"fmt"
	"slices"
)

// maxID limits the ids in a vocabulary file.
const maxID = 1 << 22

// alphabet maps every byte to a visible character: printable Latin-1 bytes to themselves, the other 68 to U+0100
// onwards. order lists the bytes in the order of the published vocabulary.
var (
	alphabet [256]string
	order    []byte
)

func init() {
	visible := func(b int) bool {
		return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xff && b != 0xad
	}
	next := rune(0x100)
	var hidden []byte
	for b := range 256 {
		r := rune(b)
		if visible(b) {
			order = append(order, byte(b))
		} else {
			hidden = append(hidden, byte(b))
			r = next
			next++
		}
		alphabet[b] = string(r)
	}

	order = append(order, hidden...)
}

// fromMerges numbers the tokens as OpenAI does: bytes, bytes that end a word, merges, start of text, end of text.
func fromMerges(merges []pair) (*Tokenizer, error) {
	vocab := make(map[string]int, len(merges)+2*256+2)
	for _, end := range []string{"", wordEnd} {
		for _, b := range order {
			vocab[alphabet[b]+end] = len(vocab)
		}
	}

	for i, m := range append(slices.Clone(merges), pair{StartOfText, ""}, pair{EndOfText, ""}) {
		token := m.left + m.right
		if _, twice := vocab[token]; twice {
			return nil, fmt.Errorf("merge %d: token %s is made a second time", i+1, quote(token))
		}
		if i < len(merges) {
			if _, err := parts(vocab, i, m); err != nil {
				return nil, err
			}
		}
		vocab[token] = len(vocab)
	}

	return build(vocab, merges)
}

// parts returns the ids of both sides of a merge.
func parts(vocab map[string]int, i int, m pair) (ids [2]int, err error) {
	for k, side := range []string{m.left, m.right} {
		var ok bool
		if ids[k], ok = vocab[side]; !ok {
			return ids, fmt.Errorf("merge %d (%s and %s): %s is not a token: the file is damaged or not CLIP's",
				i+1, quote(m.left), quote(m.right), quote(side))
		}
	}

	return ids, nil
}

// build checks and indexes the vocabulary of a CLIP. Ids may have gaps.
func build(vocab map[string]int, merges []pair) (*Tokenizer, error) {
	tokenizer := &Tokenizer{ids: vocab, tokens: make(map[int]string, len(vocab)), merges: merges, clip: true, sep: -1}
	for token, id := range vocab {
		if err := checkID(token, id); err != nil {
			return nil, err
		}
		if twin, ok := tokenizer.tokens[id]; ok {
			return nil, fmt.Errorf("tokens %s and %s share id %d", quote(min(token, twin)), quote(max(token, twin)), id)
		}
		tokenizer.tokens[id], tokenizer.size = token, max(tokenizer.size, id+1)
	}

	tokenizer.sos, tokenizer.eot = tokenizer.find(StartOfText), tokenizer.find(EndOfText)
	if tokenizer.sos < 0 || tokenizer.eot < 0 {
		return nil, fmt.Errorf("no token %s or %s: not a CLIP vocabulary", StartOfText, EndOfText)
	}

	model, err := hfModel{Vocab: vocab, Merges: merges, EndOfWord: wordEnd}.bpe()
	if err != nil {
		return nil, err
	}

	if len(model.join) < len(merges) {
		return nil, errors.New("a merge is listed a second time: the file is damaged")
	}

	model.strict, model.whole = true, map[string]int{StartOfText: tokenizer.sos, EndOfText: tokenizer.eot}
	words, err := cut(clipWords, "Removed", true)
	tokenizer.pipe = &pipeline{pre: chain(words, each(func(p piece) string { return visible(p.text) })), model: model,
		normalizer: func(s string) (string, error) { return Clean(s), nil }}
	return tokenizer, err
}

// add gives a token its id.
func (t *Tokenizer) add(token string, id int) error {
	t.ids[token], t.tokens[id], t.size = id, token, max(t.size, id+1)
	return checkID(token, id)
}

func checkID(token string, id int) error {
	if id < 0 || id >= maxID {
		return fmt.Errorf("token %s has id %d, outside 0..%d", quote(token), id, maxID-1)
	}
	return nil
}
