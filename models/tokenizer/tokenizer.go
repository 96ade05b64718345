package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// StartOfText and EndOfText are the two special tokens of every CLIP vocabulary.
	StartOfText = "<|startoftext|>"
	EndOfText   = "<|endoftext|>" // also the token at whose position CLIP reads the features of a text

	// CLIPMerges is the number of merges in OpenAI's models: 256 bytes, 256 bytes that end a word, these merges and two
	// special tokens are 49,408 tokens.
	CLIPMerges = 49408 - 2*256 - 2

	wordEnd = "</w>"

	maxText = 16 << 10 // bytes of one Encode
)

// Tokenizer converts text to token ids. It is safe for concurrent use.
type Tokenizer struct {
	tokens   map[int]string
	ids      map[string]int
	merges   []pair    // of CLIP's
	extra    []hfAdded // tokens that CLIP's vocabulary lacks
	clip     bool      // OpenAI's tokenizer
	size     int
	sos, eot int // sos is -1 if texts have no start token
	pad      int // -1 if the file names none
	sep      int // -1 if there is none, see WithCleaning

	treatment TextCleaning
	strip     int // the separator that becomes 0, if the treatment says so
	pipe      *pipeline
	file      map[string]json.RawMessage // the file that was read, unless it is CLIP's
}

// pair is a merge of two tokens. In files it is "left right" in older releases and ["left","right"] in newer ones.
type pair struct{ left, right string }

// UnmarshalJSONFrom implements jsonv2.UnmarshalerFrom.
func (p *pair) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	data, err := d.ReadValue()
	if err != nil {
		return err
	}

	var list []string
	if data.Kind() == '"' {
		line, _ := jsontext.AppendUnquote(nil, data) // an error is of invalid UTF-8, which becomes U+FFFD
		list = strings.Split(string(line), " ")      // and not at other white space, which tokens may hold
	} else if err := decode(data, &list); err != nil {
		return err
	}

	if len(list) != 2 {
		return fmt.Errorf("merges hold %.60s where two tokens are wanted", data)
	}

	*p = pair{list[0], list[1]}
	return nil
}

type merge struct{ rank, id int }

// SOS returns the id of the token that starts every sequence, or -1.
func (t *Tokenizer) SOS() int { return t.shown(t.sos) }

// EOT returns the id of the token that ends every sequence.
func (t *Tokenizer) EOT() int { return t.shown(t.eot) }

// Pad returns the id of the padding token: 0 for CLIP.
func (t *Tokenizer) Pad() int { return max(t.shown(t.pad), 0) }

// CLIP reports whether this is OpenAI's tokenizer, whose cleaning of texts no file describes.
func (t *Tokenizer) CLIP() bool { return t.clip }

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

	pipe := *t.pipe
	if t.treatment.Clean != "" && t.clip {
		pipe.normalizer = nil // OpenCLIP's treatment takes its place
	}

	ids, err := pipe.encode(t.clean(text))
	if err != nil {
		return nil, fmt.Errorf("tokenizer: text %s: %w", quote(text), err)
	}

	for i, id := range ids {
		ids[i] = t.shown(id)
	}

	return ids, nil
}

// Whole returns SOS, the ids of a text and EOT. A text of more than context tokens is an error: truncation would
// silently change what is classified.
func (t *Tokenizer) Whole(text string, context int) ([]int, error) {
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

	return ids, nil
}

// Sequence is Whole, padded to context tokens.
func (t *Tokenizer) Sequence(text string, context int) ([]int64, error) {
	ids, err := t.Whole(text, context)
	if err != nil {
		return nil, err
	}

	seq := make([]int64, context)
	for i := range seq {
		if seq[i] = int64(t.Pad()); i < len(ids) {
			seq[i] = int64(ids[i])
		}
	}

	return seq, nil
}

// quote quotes at most the first 60 characters of a text.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		return fmt.Sprintf("%q...", string(r[:60]))
	}
	return fmt.Sprintf("%q", s)
}
