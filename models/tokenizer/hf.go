package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"promptfed/runtime/atomicfile"
)

// hfFile is the content of Hugging Face's tokenizer.json.
type hfFile struct {
	Added      []hfAdded       `json:"added_tokens"`
	Normalizer json.RawMessage `json:"normalizer"`
	Pre        json.RawMessage `json:"pre_tokenizer"`
	Post       json.RawMessage `json:"post_processor"`
	Padding    *hfPadding      `json:"padding"`
	Model      hfModel         `json:"model"`
}

type hfAdded struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Left       bool   `json:"lstrip"`
	Right      bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized,omitempty"`
	Special    bool   `json:"special"`
}

type hfPadding struct {
	Direction string `json:"direction"`
	ID        int    `json:"pad_id"`
}

type hfModel struct {
	Type         string          `json:"type"`
	Dropout      float64         `json:"dropout"`
	Unknown      string          `json:"unk_token"`
	UnknownID    *int            `json:"unk_id"`
	Prefix       string          `json:"continuing_subword_prefix"`
	EndOfWord    string          `json:"end_of_word_suffix"`
	FuseUnknown  bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	MaxInput     *int            `json:"max_input_chars_per_word"`
	RawVocab     json.RawMessage `json:"vocab"`
	Merges       []pair          `json:"merges"`
	Vocab        vocabulary      `json:"-"`
}

// object is a part of a tokenizer.json that another file is converted to.
type object = map[string]any

// special returns the entry of a special token among the added tokens.
func special(id int, token string) object {
	return object{"id": id, "content": token, "special": true, "normalized": false}
}

// fromParts reads the tokenizer.json with these parts.
func fromParts(added []any, normalizer, pre, post, model object) (*Tokenizer, error) {
	text, err := json.Marshal(object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"decoder": nil, "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post, "model": model})
	if err != nil {
		return nil, err
	}
	return readHF(bytes.NewReader(text))
}

// maxTokens limits the tokens of a vocabulary. The largest of a published text tower has 262,144.
const maxTokens = 1 << 20

// vocabulary is a JSON object of token -> id. A repeated token is an error, because readers could disagree about its
// id.
type vocabulary map[string]int

// UnmarshalJSONFrom implements jsonv2.UnmarshalerFrom.
func (v *vocabulary) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	if decoder.PeekKind() == 'n' {
		return decoder.SkipValue()
	}

	if t, err := decoder.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.New("vocab is not an object of token and id")
	}

	*v = vocabulary{}
	for decoder.PeekKind() == '"' {
		t, err := decoder.ReadToken()
		if err != nil {
			return err
		}

		token := t.String()
		if len(*v) >= maxTokens {
			return fmt.Errorf("more than %d tokens", maxTokens)
		}

		if _, twice := (*v)[token]; twice {
			return fmt.Errorf("token %s is listed twice", quote(token))
		}

		number, err := decoder.ReadValue()
		if err != nil {
			return err
		}

		if (*v)[token], err = strconv.Atoi(string(number)); err != nil {
			return fmt.Errorf("token %s has the id %.60s", quote(token), number)
		}
	}

	_, err := decoder.ReadToken() // the brace
	return err
}

// hfHead is the part of tokenizer.json before its model: special tokens, cleaning, the word pattern, and the sequence
// of start, text and end. A line break in it is a byte of the file, and so of the digests of bundles; therefore the
// parts of a long line are concatenated.
const hfHead = `{
"version": "1.0",
"truncation": null,
"padding": null,
"added_tokens": [
{"id": %[1]d, "content": %[3]q, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,` +
	` "special": true},
{"id": %[2]d, "content": %[4]q, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,` +
	` "special": true}%[5]s
],
"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},` +
	` {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
{"type": "Split", "pattern": {"Regex": "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"},` +
	` "behavior": "Removed", "invert": true},
{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
"post_processor": {"type": "RobertaProcessing", "sep": [%[4]q, %[2]d], "cls": [%[3]q, %[1]d],` +
	` "trim_offsets": false, "add_prefix_space": false},
"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
"model": {
"type": "BPE", "dropout": null, "unk_token": %[4]q, "continuing_subword_prefix": "",` +
	` "end_of_word_suffix": "</w>", "fuse_unk": false, "byte_fallback": false,
"vocab": {
`

// Write stores the tokenizer as Hugging Face's tokenizer.json, with CLIP's tokens in the order of their ids. Equal
// tokenizers give equal bytes.
func (t *Tokenizer) Write(w io.Writer) error {
	var out bytes.Buffer
	if t.file != nil {
		data, err := json.Marshal(t.file)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}

	var extra, vocab, merges []string
	inside := maps.Clone(t.tokens)
	for _, a := range t.extra {
		extra = append(extra, ",\n"+jsonString(a))
		delete(inside, a.ID)
	}

	fmt.Fprintf(&out, hfHead, t.sos, t.eot, StartOfText, EndOfText, strings.Join(extra, ""))
	for _, id := range slices.Sorted(maps.Keys(inside)) {
		vocab = append(vocab, fmt.Sprintf("%s: %d", jsonString(inside[id]), id))
	}

	for _, m := range t.merges {
		merges = append(merges, jsonString(m.left+" "+m.right))
	}

	fmt.Fprintf(&out, "%s},\n\"merges\": [\n%s]\n}\n}\n", strings.Join(vocab, ",\n"), strings.Join(merges, ",\n"))
	_, err := w.Write(out.Bytes())
	return err
}

// WriteHF writes tokenizer.json into an existing folder. Load and Hugging Face's tokenizers can read it.
func (t *Tokenizer) WriteHF(dir string) error {
	return atomicfile.Write(filepath.Join(dir, jsonName), t.Write)
}

func jsonString(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return `""`
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
