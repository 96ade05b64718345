package tokenizer

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// wordPiece splits each word into the longest tokens from left to right (Wu et al. 2016, as in Devlin et al. 2019).
type wordPiece struct {
	ids     map[string]int
	unknown int
	prefix  string
	longest int // maximal characters of a word; a longer one is unknown
}

// maxWord limits longest: the work is quadratic in the length of a word.
const maxWord = 1000

func (f hfModel) wordPiece() (*wordPiece, error) {
	wordPiece := &wordPiece{ids: f.Vocab, prefix: f.Prefix, longest: 100}
	if f.MaxInput != nil {
		wordPiece.longest = *f.MaxInput
	}

	if wordPiece.longest < 0 || wordPiece.longest > maxWord {
		return nil, fmt.Errorf("max_input_chars_per_word %d, must be 0 to %d", wordPiece.longest, maxWord)
	}

	var err error
	wordPiece.unknown, err = f.unknownID()
	return wordPiece, err
}

// unknownID returns the id of the unknown token.
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

// readBERT reads BERT's list of tokens, one per line, by converting it to an equivalent tokenizer.json.
func readBERT(r io.Reader, config hfConfig) (*Tokenizer, error) {
	vocab := map[string]int{}
	lines := bufio.NewScanner(bounded(r, maxFile))
	for id := 0; lines.Scan(); id++ {
		if len(vocab) >= maxTokens {
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
		vocab[strings.TrimSuffix(lines.Text(), "\r")] = id
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after %d tokens: %w", len(vocab), err)
	}

	var added []any
	for _, name := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		if id, ok := vocab[name]; ok {
			added = append(added, special(id, name))
		} else if name != "[PAD]" && name != "[MASK]" {
			return nil, fmt.Errorf("no token %s: not BERT's vocabulary", name)
		}
	}

	return fromParts(added,
		object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": orTrue(config.Chinese),
			"strip_accents": config.Accents, "lowercase": orTrue(config.Lower)},
		object{"type": "BertPreTokenizer"},
		object{"type": "BertProcessing", "sep": []any{"[SEP]", vocab["[SEP]"]}, "cls": []any{"[CLS]", vocab["[CLS]"]}},
		object{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100, "vocab": vocab})
}

// wordLevel has one token for every word.
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
