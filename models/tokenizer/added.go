package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is searched in texts before any other step.
type addedToken struct {
	id                      int
	text                    string
	singleWord, left, right bool
}

// addedTokens finds the longest token at the first place where one begins.
type addedTokens struct {
	list  []addedToken
	index trie
}

func (a *addedTokens) add(t addedToken) {
	a.index.add(t.text, len(a.list))
	a.list = append(a.list, t)
}

// longest returns the longest token at the start of s, or nil.
func (a *addedTokens) longest(s string) (found *addedToken) {
	node := int32(0)
	for i := range len(s) {
		to, ok := a.index.next[trieEdge{node, s[i]}]
		if !ok {
			break
		}
		if node = to; a.index.at[node] >= 0 {
			found = &a.list[a.index.at[node]]
		}
	}

	return found
}

// part is a token, or a text that is not split yet.
type part struct {
	text  string
	first bool // the whole text begins with it
	token int  // -1 for a text
}

// split splits a text at its added tokens; a token may also consume the white space beside it.
func (a *addedTokens) split(input string, first bool) (out []part) {
	from := 0
	text := func(to int) {
		if to > from {
			out = append(out, part{input[from:to], first && from == 0, -1})
		}
	}

	for i := 0; i < len(input) && len(a.list) > 0; i++ {
		addedToken := a.longest(input[i:])
		if addedToken == nil {
			continue
		}

		start, end := i, i+len(addedToken.text)
		before, _ := utf8.DecodeLastRuneInString(input[:start]) // U+FFFD, which is in no word, at the ends
		after, _ := utf8.DecodeRuneInString(input[end:])
		if addedToken.singleWord && (isWord(before) || isWord(after)) {
			i = end - 1
			continue
		}

		if addedToken.left {
			start = max(from, len(strings.TrimRightFunc(input[:start], unicode.IsSpace)))
		}

		if addedToken.right {
			end = len(input) - len(strings.TrimLeftFunc(input[end:], unicode.IsSpace))
		}

		text(start)
		out = append(out, part{token: addedToken.id})
		i, from = max(i+len(addedToken.text), end)-1, end
	}

	text(len(input))
	return out
}

// pipeline is the content of a tokenizer.json, except for the tokens around a text.
type pipeline struct {
	raw, normal addedTokens // searched before and after the normalizer
	normalizer  normalizer
	pre         preTokenizer
	model       model
}

// search lets added tokens be found in texts.
func (p *pipeline) search(tokens []hfAdded) (err error) {
	for _, a := range tokens {
		at, added := &p.raw, addedToken{id: a.ID, text: a.Content, singleWord: a.SingleWord, left: a.Left,
			right: a.Right}
		if a.Normalized != nil && *a.Normalized || a.Normalized == nil && !a.Special {
			at = &p.normal
			if added.text, err = p.normalizer.apply(a.Content); err != nil {
				return err
			}
		}

		if added.text != "" {
			at.add(added)
		}
	}

	return nil
}

func (p *pipeline) encode(text string) ([]int, error) {
	ids := []int{}
	for _, whole := range p.raw.split(text, true) {
		if whole.token >= 0 {
			ids = append(ids, whole.token)
			continue
		}

		clean, err := p.normalizer.apply(whole.text)
		if err != nil {
			return nil, err
		}

		// In that library, a text whose first character the normalizer drops does not begin with its first piece.
		_, width := utf8.DecodeRuneInString(whole.text)
		kept, err := p.normalizer.apply(whole.text[:width])
		if err != nil {
			return nil, err
		}

		for _, part := range p.normal.split(clean, whole.first && kept != "") {
			if part.token >= 0 {
				ids = append(ids, part.token)
				continue
			}

			pieces, err := p.pre([]piece{{text: part.text, first: part.first}})
			if err != nil {
				return nil, err
			}

			for _, q := range pieces {
				some, err := p.model.encode(q.text)
				if err != nil {
					return nil, fmt.Errorf("word %s: %w", quote(q.text), err)
				}
				ids = append(ids, some...)
			}
		}
	}

	return ids, nil
}
