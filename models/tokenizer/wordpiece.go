package tokenizer

import "fmt"

// wordPiece cuts each word into the longest tokens from left to right (Wu et al. 2016, as Devlin et al. 2019 use it).
type wordPiece struct {
	ids     map[string]int
	unknown int
	prefix  string
	longest int // characters of a word; a longer one is unknown
}

// maxWord bounds what is looked up for one word: the work is quadratic in it.
const maxWord = 1000

func (f hfModel) wordPiece() (*wordPiece, error) {
	w := &wordPiece{ids: f.Vocab, prefix: f.Prefix, longest: 100}
	if f.MaxInput != nil {
		w.longest = *f.MaxInput
	}
	if w.longest < 0 || w.longest > maxWord {
		return nil, fmt.Errorf("max_input_chars_per_word %d, must be 0 to %d", w.longest, maxWord)
	}
	var err error
	w.unknown, err = f.unknownID()
	return w, err
}

// unknownID is the token of what has no other one.
func (f hfModel) unknownID() (int, error) {
	id, ok := f.Vocab[f.Unknown]
	if !ok {
		return 0, fmt.Errorf("the unknown token %s is not in the vocabulary", quote(f.Unknown))
	}
	return id, nil
}

func (w *wordPiece) encode(s string) ([]int, error) {
	r := []rune(s)
	if len(r) > w.longest {
		return []int{w.unknown}, nil
	}
	var out []int
	for from := 0; from < len(r); {
		to, id, ok := len(r), 0, false
		for ; to > from && !ok; to-- {
			part := string(r[from:to])
			if from > 0 {
				part = w.prefix + part
			}
			id, ok = w.ids[part]
		}
		if !ok {
			return []int{w.unknown}, nil
		}
		out, from = append(out, id), to+1
	}
	return out, nil
}

// wordLevel has a token for every word.
type wordLevel struct {
	ids     map[string]int
	unknown int
}

func (w wordLevel) encode(s string) ([]int, error) {
	if id, ok := w.ids[s]; ok {
		return []int{id}, nil
	}
	return []int{w.unknown}, nil
}
