package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// readHF reads tokenizer.json. The file of a CLIP becomes OpenAI's tokenizer, whose cleaning is not in the file: added
// tokens are searched in texts if the vocabulary lacks them, so padding such as "!" is not. Any other file is
// implemented as it says.
func readHF(r io.Reader) (*Tokenizer, error) {
	var file hfFile
	data, err := io.ReadAll(bounded(r, maxJSON))
	if err != nil {
		return nil, err
	}

	if err := decode(data, &file); err != nil {
		return nil, err
	}

	if file.Model.Type == "" && len(file.Model.Merges) > 0 {
		file.Model.Type = "BPE" // older releases omit it
	}

	var list []scored
	file.Model.Vocab = vocabulary{}
	if file.Model.Type == "Unigram" {
		err = decode(file.Model.RawVocab, &list)
		for id, p := range list {
			if len(file.Model.Vocab) >= maxTokens {
				return nil, fmt.Errorf("more than %d tokens", maxTokens)
			}
			file.Model.Vocab[p.token] = id
		}
	} else if len(file.Model.RawVocab) > 0 {
		err = decode(file.Model.RawVocab, &file.Model.Vocab)
	}

	if err != nil {
		return nil, err
	}

	vocab := file.Model.Vocab
	for _, a := range file.Added {
		if id, ok := vocab[a.Content]; ok && id != a.ID {
			return nil, fmt.Errorf("token %s has ids %d and %d", quote(a.Content), id, a.ID)
		}
	}

	if file.clip() {
		extra := slices.DeleteFunc(file.Added, func(a hfAdded) bool {
			_, ok := vocab[a.Content]
			if !ok {
				vocab[a.Content] = a.ID
			}
			return ok || a.Content == StartOfText || a.Content == EndOfText
		})

		tokenizer, err := build(vocab, file.Model.Merges)
		if err != nil {
			return nil, err
		}

		tokenizer.extra = extra
		return tokenizer, tokenizer.pipe.search(extra)
	}

	t, err := file.tokenizer(list)
	if err == nil {
		err = decode(data, &t.file)
	}

	return t, err
}

// clip reports whether the file belongs to a CLIP.
func (f hfFile) clip() bool {
	has := func(token string) bool {
		_, ok := f.Model.Vocab[token]
		return ok || slices.ContainsFunc(f.Added, func(a hfAdded) bool { return a.Content == token })
	}
	return f.Model.Type == "BPE" && f.Model.EndOfWord == wordEnd && has(StartOfText) && has(EndOfText)
}

// tokenizer builds the tokenizer that the file describes.
func (f hfFile) tokenizer(list []scored) (*Tokenizer, error) {
	pipeline := &pipeline{}
	tokenizer := &Tokenizer{pipe: pipeline, ids: map[string]int{}, tokens: map[int]string{}, size: len(list), sos: -1,
		pad: -1, sep: -1}
	for token, id := range f.Model.Vocab {
		if err := tokenizer.add(token, id); err != nil {
			return nil, err
		}
	}

	var err error
	if pipeline.model, err = f.Model.build(list); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}

	if pipeline.normalizer, err = readNormalizer(f.Normalizer, 0); err != nil {
		return nil, err
	}

	if pipeline.pre, err = readPreTokenizer(f.Pre, 0); err != nil {
		return nil, err
	}

	for _, a := range f.Added {
		if err := tokenizer.add(a.Content, a.ID); err != nil {
			return nil, err
		}
	}

	if err := pipeline.search(f.Added); err != nil {
		return nil, err
	}

	before, after, sep, err := f.around()
	if err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}

	if len(before) > 1 || len(after) != 1 {
		return nil, fmt.Errorf("post_processor puts %d tokens before a text and %d after it; at most one before it "+
			"and exactly one after it are supported", len(before), len(after))
	}

	if tokenizer.eot = after[0]; len(before) == 1 {
		tokenizer.sos = before[0]
	}

	for _, id := range append(before, after...) {
		if _, ok := tokenizer.tokens[id]; !ok {
			return nil, fmt.Errorf("post_processor: no token has id %d", id)
		}
	}

	if sep || tokenizer.tokens[tokenizer.eot] == bertSep {
		tokenizer.sep = tokenizer.eot
	}

	if f.Padding != nil {
		if f.Padding.Direction != "" && f.Padding.Direction != "Right" {
			return nil, fmt.Errorf("padding to the %.20q is not supported, only Right", f.Padding.Direction)
		}
		if _, ok := tokenizer.tokens[f.Padding.ID]; !ok {
			return nil, fmt.Errorf("padding: no token has id %d", f.Padding.ID)
		}
		tokenizer.pad = f.Padding.ID
	}

	return tokenizer, nil
}

func (m hfModel) build(list []scored) (model, error) {
	switch m.Type {
	case "BPE":
		return m.bpe()
	case "WordPiece":
		return m.wordPiece()
	case "WordLevel":
		unknown, err := m.unknownID()
		return wordLevel{m.Vocab, unknown}, err
	case "Unigram":
		for _, p := range list {
			if math.IsNaN(p.score) || math.IsInf(p.score, 0) {
				return nil, fmt.Errorf("token %s has score %g", quote(p.token), p.score)
			}
		}
		return newUnigram(list, m.UnknownID, m.ByteFallback)
	}

	return nil, fmt.Errorf("type %.40q, must be BPE, WordPiece, WordLevel or Unigram", m.Type)
}

// templateItem is an entry of a template, templateToken a token and its id, and templateSpecial the ids of a special
// token in a template.
type (
	templateItem struct {
		ID string `json:"id"`
	}
	templateToken   struct{ id int }
	templateSpecial struct {
		IDs []int `json:"ids"`
	}
)

func (t *templateToken) UnmarshalJSON(data []byte) error {
	var list []any
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}

	if len(list) == 2 {
		if id, ok := list[1].(float64); ok && id == math.Trunc(id) && math.Abs(id) < maxID {
			t.id = int(id)
			return nil
		}
	}

	return fmt.Errorf("%.60s is not a token and its id", data)
}

// around returns the tokens before and after a text, and whether the file calls the last one a separator.
func (f hfFile) around() (before, after []int, sep bool, err error) {
	var walk func(data json.RawMessage, depth int) error
	walk = func(data json.RawMessage, depth int) error {
		component, err := read("post_processor", data, depth)
		if err != nil {
			return err
		}

		switch component.Type {
		case "", "ByteLevel":
			return nil
		case "Sequence":
			for _, part := range component.Post {
				if err := walk(part, depth+1); err != nil {
					return err
				}
			}
			return nil
		case "BertProcessing", "RobertaProcessing":
			if component.Cls == nil || component.Sep == nil {
				return errors.New("cls or sep is missing")
			}
			before, after, sep = append(before, component.Cls.id), append(after, component.Sep.id), true
			return nil
		case "TemplateProcessing":
			return component.template(&before, &after)
		}

		return fmt.Errorf("%.40q is not supported", component.Type)
	}

	err = walk(f.Post, 0)
	return before, after, sep, err
}

// template reads the template for a single text.
func (c component) template(before, after *[]int) error {
	seen := false
	for _, place := range c.Single {
		if _, ok := place["Sequence"]; ok {
			if seen {
				return errors.New("the template has the text twice")
			}
			seen = true
			continue
		}

		item, ok := place["SpecialToken"]
		special, known := c.Special[item.ID]
		if !ok || !known {
			return fmt.Errorf("the template has a place %.60q that is neither the text nor a special token", item.ID)
		}

		if seen {
			*after = append(*after, special.IDs...)
		} else {
			*before = append(*before, special.IDs...)
		}
	}

	if !seen {
		return errors.New("the template has no place for the text")
	}

	return nil
}
