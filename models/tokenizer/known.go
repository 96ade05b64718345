package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unseen is a letter of Ugaritic, which no vocabulary for images has.
const unseen = "\U00010380"

// Spells reports whether a word of text is beyond the vocabulary: it has letters beyond ASCII, and its tokens are
// single letters or bytes, or a token for unknown text. It has then at least a token a letter. In Chinese, Japanese and
// Korean, whose characters are words or syllables, it has more than one a character.
func (t *Tokenizer) Spells(text string) (bool, error) {
	// SentencePiece writes the space before a word as a token of its own if no longer token begins with it.
	bare := func(ids []int) []int {
		return slices.DeleteFunc(ids, func(id int) bool { return t.tokens[id] == "▁" })
	}

	unknown, _ := t.Encode(unseen) // none if the vocabulary lacks its bytes
	unknown = bare(unknown)
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.In(r, unicode.L, unicode.M) }) {
		if len(word) == utf8.RuneCountInString(word) {
			continue
		}

		ids, err := t.Encode(word)
		if err != nil {
			return false, err
		}

		known := utf8.RuneCountInString(word) - 1 // the largest number of tokens of a known word
		if strings.ContainsFunc(word, wordLike) {
			known++
		}

		tokens := bare(ids)
		if len(tokens) > max(known, 1) || len(unknown) <= 1 && slices.Equal(tokens, unknown) {
			return true, nil
		}
	}

	return false, nil
}

// wordLike reports whether a character stands for a word or a syllable.
func wordLike(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}
