package bundle

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// maxSuffixes limits the number of class lists whose embeddings are cached.
const maxSuffixes = 16

// Prompts adds the text tower to g and returns for each prompt the features [C,D] of all classes, not normalised. The
// text of a class is the prompt, the class name and a full stop. If the name is at the end (the default), this is the
// exact cheap form, all prompts in one pass; if the name is in the middle or in front, it is the plain form.
//
// Exported towers that are not recognised as CLIP's support only prompts [T,width].
//
// If a class and its prompt exceed the context, the error names the class and both lengths.
func (b *Bundle) Prompts(g *graph.Graph, classes []string, prompts []clip.Prompt) ([]graph.Node, error) {
	_, s, err := b.suffixesOf(classes, someWord, ".")
	if err != nil {
		return nil, err
	}

	out, err := b.ClassFeatures(g, s, prompts)
	if err == nil {
		err = g.Err()
	}

	return out, b.wrap(err)
}

// Sentences adds the text tower to g and returns the features [N,D] of whole texts, not normalised.
func (b *Bundle) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	tokenizer, err := b.Tokenizer()
	if err != nil {
		return graph.Node{}, err
	}

	if len(texts) == 0 {
		return graph.Node{}, b.wrap(errors.New("no texts"))
	}

	ids := make([][]int, len(texts))
	for i, text := range texts {
		if ids[i], err = tokenizer.Whole(text, b.Text.Context); err != nil {
			return graph.Node{}, b.wrap(err)
		}
	}

	n, err := b.TextFeatures(g, ids)
	if err == nil {
		err = g.Err()
	}

	return n, b.wrap(err)
}

// someWord stands for a prompt, as in CoOp. A word before a name changes its tokens if they hold the space between, as
// those of RoBERTa and of SigLIP 2 do.
const someWord = "x "

// ClassTokens returns the tokens [name . EOT] of each class, as they are behind a word. The full stop or the name has
// no tokens if the cleaning of texts removes it. If the tokenizer joins words, the name begins the text.
func (b *Bundle) ClassTokens(classes []string) ([][]int, error) {
	_, ids, err := b.tokensOf(classes, someWord, ".")
	return ids, err
}

// tokensOf returns the number of tokens of the words before the classes, and the rest of each text with EOT. If a text
// does not begin with the tokens of these words, the number is 0, and the rest is the whole text, without someWord.
func (b *Bundle) tokensOf(classes []string, before, behind string) (int, [][]int, error) {
	t, err := b.Tokenizer()
	if err != nil {
		return 0, nil, err
	}

	words, _ := t.Encode(strings.TrimSpace(before)) // an error comes again with each class
	ids, n := make([][]int, len(classes)), len(words)
	for c, name := range classes {
		if ids[c], err = t.Encode(before + name + behind); err != nil {
			return 0, nil, fmt.Errorf("bundle %s: class %.60q: %w", b.Name, name, err)
		}
		if !slices.Equal(ids[c][:min(n, len(ids[c]))], words[:n]) {
			n = 0
		}
	}

	if n == 0 && strings.TrimSpace(before) == strings.TrimSpace(someWord) {
		return b.tokensOf(classes, "", behind)
	}

	for c := range ids {
		ids[c] = append(ids[c][n:], t.EOT())
	}

	return n, ids, nil
}

// Words returns the embeddings [n,width] of the tokens of a text, without start and end tokens.
func (b *Bundle) Words(text string) (*tensor.Tensor, error) {
	t, err := b.Tokenizer()
	if err != nil {
		return nil, err
	}

	ids, err := t.Encode(text)
	if err != nil {
		return nil, b.wrap(err)
	}

	rows, err := b.Embed(ids)
	if err != nil {
		return nil, err
	}

	return tensor.Of(rows, len(ids), b.Text.Width), nil
}

// SplitTemplate splits a hand-written template, in which {} is the class. It returns the embeddings [n,width] of the
// words before the class, which all classes share, or nil if there are none, and the rest of each class's text.
func (b *Bundle) SplitTemplate(classes []string, template string) (*tensor.Tensor, *clip.Suffixes, error) {
	before, behind, ok := strings.Cut(template, "{}")
	if words := strings.TrimRight(before, " "); !ok || words == before && words != "" {
		return nil, nil, b.wrap(fmt.Errorf("the template %q must have {} for the class, with a space in front",
			template))
	}

	words, s, err := b.suffixesOf(classes, before, behind)
	if err != nil || words == 0 {
		return nil, s, err
	}

	rows, err := b.Words(strings.TrimSpace(before))
	return rows, s, err
}

// EmptySuffix returns the rest of a prompt without a class: a full stop and the end token.
func (b *Bundle) EmptySuffix() (*clip.Suffixes, error) {
	_, s, err := b.suffixesOf([]string{""}, strings.TrimSpace(someWord), ".")
	return s, err
}

// StepBytes returns about how much memory a training step takes for a prompt of classes, or where each image has its
// own prompt for one image.
func (b *Bundle) StepBytes(classes []string, p clip.Prompt) (int, error) {
	_, s, err := b.suffixesOf(classes, someWord, ".")
	if err != nil {
		return 0, err
	}
	return clip.Text{TextArch: b.Text}.StepBytes(s, p), nil
}

// suffixesOf returns the embeddings of the tokens of tokensOf. They are cached, so that graphs intern them.
func (b *Bundle) suffixesOf(classes []string, before, behind string) (int, *clip.Suffixes, error) {
	words, ids, err := b.tokensOf(classes, before, behind)
	if err != nil {
		return 0, nil, err
	}

	key := fmt.Sprintf("%q %v", classes, ids)
	b.mu.Lock()
	defer b.mu.Unlock()
	if s, ok := b.suffixes[key]; ok {
		return words, s, nil
	}

	stop, err := b.tokens.Encode(".")
	if err != nil {
		return 0, nil, b.wrap(err)
	}

	suffixes, err := clip.NewSuffixes(classes, ids, clip.SpecialTokens{SOS: b.tokens.SOS(), Pad: b.tokens.Pad(),
		NoStop: len(stop) == 0},
		b.Text.Width, b.Embed)
	if err != nil {
		return 0, nil, b.wrap(err)
	}

	if b.suffixes == nil || len(b.suffixes) >= maxSuffixes {
		b.suffixes = map[string]*clip.Suffixes{}
	}

	b.suffixes[key] = suffixes
	return words, suffixes, nil
}

// EmbeddingRows reads the rows of tokens from an embedding [vocabulary,width] at an offset of a file.
func EmbeddingRows(r io.ReaderAt, offset int64, dtype string, vocabulary, width int, ids []int) ([]float32, error) {
	row := make([]byte, width*safetensors.ElementSize(dtype))
	out := tensor.New(len(ids), width)
	for i, id := range ids {
		if id < 0 || id >= vocabulary {
			return nil, fmt.Errorf("no token %d: the vocabulary has %d", id, vocabulary)
		}
		_, err := r.ReadAt(row, offset+int64(id)*int64(len(row)))
		if err == nil {
			err = safetensors.Decode(dtype, row, out, i*width)
		}
		if err != nil {
			return nil, fmt.Errorf("token %d: %w", id, err)
		}
	}

	return out.Data, nil
}
