package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// StartOfText and EndOfText are the two special tokens of every CLIP vocabulary.
	StartOfText = "<|startoftext|>"
	EndOfText   = "<|endoftext|>"

	// CLIPMerges is the number of merges in OpenAI's models: 256 bytes, 256 bytes that end a word, these merges and two
	// special tokens are 49,408 tokens.
	CLIPMerges = 49408 - 2*256 - 2

	wordEnd = "</w>"

	// maxText limits the work of one Encode, in bytes: the merge loop may take time quadratic in the length of a word.
	maxText = 16 << 10
	// maxCached limits the number of cached words.
	maxCached = 1 << 15
)

// Tokenizer converts text to token ids and back. It is safe for concurrent use.
type Tokenizer struct {
	tokens   map[int]string
	ids      map[string]int
	merges   []pair
	join     map[[2]int]merge
	inner    [256]int // id of a byte inside a word, or -1
	final    [256]int // id of a byte that ends a word
	size     int
	sos, eot int // sos is -1 if texts have no start token
	pad      int // -1 if the file names none
	sep      int // -1 if there is none, see WithCleaning

	treatment TextCleaning
	strip     int                        // the separator that becomes 0, if the treatment says so
	pipe      *pipeline                  // of a tokenizer other than CLIP's
	file      map[string]json.RawMessage // the file that was read
	cache     *wordCache                 // of CLIP's tokenizer
}

// wordCache caches the pieces of words, for every treatment of texts.
type wordCache struct {
	sync.RWMutex
	pieces map[string][]int
}

type pair struct{ left, right string }

type merge struct{ rank, id int }

// SOS returns the id of the token that starts every sequence, or -1.
func (t *Tokenizer) SOS() int { return t.shown(t.sos) }

// EOT returns the id of the token that ends every sequence.
func (t *Tokenizer) EOT() int { return t.shown(t.eot) }

// Pad returns the id of the padding token: 0 for CLIP.
func (t *Tokenizer) Pad() int { return max(t.shown(t.pad), 0) }

// CLIP reports whether this is OpenAI's tokenizer, whose cleaning of texts no file describes.
func (t *Tokenizer) CLIP() bool { return t.pipe == nil }

// WithPad returns a tokenizer, which must not be CLIP's, with another padding token, which Write stores too.
func (t *Tokenizer) WithPad(id int) *Tokenizer {
	out := *t
	out.pad, out.file = id, maps.Clone(t.file)
	out.file["padding"] = json.RawMessage(fmt.Sprintf(`{"strategy":"BatchLongest","direction":"Right",`+
		`"pad_to_multiple_of":null,"pad_id":%d,"pad_type_id":0,"pad_token":%s}`, id, jsonString(t.tokens[id])))
	return &out
}

// VocabSize returns one more than the largest id: the number of rows that the token embedding needs.
func (t *Tokenizer) VocabSize() int { return t.size }

// Encode returns the ids of a text, cleaned according to the treatment, without SOS and EOT. It fails if the text is
// not UTF-8, is longer than 16 KiB, or holds a byte that the vocabulary lacks (a complete vocabulary has all 256).
// Special tokens that are spelled out in the text become their ids, as in the published code.
func (t *Tokenizer) Encode(text string) ([]int, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("tokenizer: text %s has %d bytes, the limit is %d: shorten it", quote(text), len(text),
			maxText)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("tokenizer: text %s is not valid UTF-8", quote(text))
	}
	if t.pipe != nil {
		ids, err := t.pipe.encode(t.clean(text))
		if err != nil {
			return nil, fmt.Errorf("tokenizer: text %s: %w", quote(text), err)
		}
		for i, id := range ids {
			ids[i] = t.shown(id)
		}
		return ids, nil
	}
	ids := []int{}
	for _, w := range words(t.clean(text)) {
		pieces, err := t.word(w)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: text %s: %w", quote(text), err)
		}
		ids = append(ids, pieces...)
	}
	return ids, nil
}

// Sequence returns SOS, the ids of a text and EOT, padded to context tokens. A text that does not fit is an error:
// truncation would silently change what is classified.
func (t *Tokenizer) Sequence(text string, context int) ([]int64, error) {
	ids, err := t.Encode(text)
	if err != nil {
		return nil, err
	}
	if ids = append(ids, t.EOT()); t.sos >= 0 {
		ids = append([]int{t.SOS()}, ids...)
	}
	if len(ids) > context {
		return nil, fmt.Errorf("tokenizer: text %s takes %d tokens with start and end, the context has %d: shorten it",
			quote(text), len(ids), context)
	}
	seq := make([]int64, context)
	for i := range seq {
		if seq[i] = int64(t.Pad()); i < len(ids) {
			seq[i] = int64(ids[i])
		}
	}
	return seq, nil
}

// Decode returns the text of ids with words separated by one space, so "can't" becomes "can 't". Unknown ids and bytes
// that are not UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int) string {
	var out []byte
	for _, id := range ids {
		token, ok := t.tokens[id]
		switch {
		case !ok:
			out = append(out, "\ufffd"...)
		case t.pipe != nil || id == t.sos || id == t.eot:
			out = append(append(out, token...), ' ')
		default:
			body, ends := strings.CutSuffix(token, wordEnd)
			for _, r := range body {
				if b, ok := byteOf[r]; ok {
					out = append(out, b)
				} else {
					out = utf8.AppendRune(out, r)
				}
			}
			if ends {
				out = append(out, ' ')
			}
		}
	}
	return strings.TrimSuffix(strings.ToValidUTF8(string(out), "\ufffd"), " ")
}

// word returns the pieces of one word, which is not empty.
func (t *Tokenizer) word(w string) ([]int, error) {
	switch w {
	case StartOfText:
		return []int{t.sos}, nil
	case EndOfText:
		return []int{t.eot}, nil
	}
	t.cache.RLock()
	ids, ok := t.cache.pieces[w]
	t.cache.RUnlock()
	if ok {
		return ids, nil
	}
	ids = t.split(w)
	for i, id := range ids {
		if id < 0 {
			return nil, fmt.Errorf("word %s: the vocabulary has no token for piece %d of %d", quote(w), i+1, len(ids))
		}
	}
	t.cache.Lock()
	if len(t.cache.pieces) < maxCached {
		t.cache.pieces[strings.Clone(w)] = ids
	}
	t.cache.Unlock()
	return ids, nil
}

// split runs the merge loop: it joins the pair of the lowest rank everywhere, from left to right, until no known pair
// is left. A byte without token is -1.
func (t *Tokenizer) split(w string) []int {
	ids := make([]int, len(w))
	for i := range len(w) {
		ids[i] = t.inner[w[i]]
	}
	ids[len(w)-1] = t.final[w[len(w)-1]]
	for {
		var best [2]int
		var found merge
		ok := false
		for i := 0; i+1 < len(ids); i++ {
			p := [2]int{ids[i], ids[i+1]}
			if m, known := t.join[p]; known && (!ok || m.rank < found.rank) {
				best, found, ok = p, m, true
			}
		}
		if !ok {
			return ids
		}
		n := 0
		for i := 0; i < len(ids); i++ {
			if i+1 < len(ids) && ids[i] == best[0] && ids[i+1] == best[1] {
				ids[n] = found.id
				i++
			} else {
				ids[n] = ids[i]
			}
			n++
		}
		ids = ids[:n]
	}
}

// quote quotes at most the first 60 characters of a text.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		return fmt.Sprintf("%q...", string(r[:60]))
	}
	return fmt.Sprintf("%q", s)
}
