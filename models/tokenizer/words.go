package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// marks are tried first at every position, in this order, whatever their case.
// Go's regexp has no simple case folding of literals beside Unicode classes at
// this speed, and the pattern is small enough to read as code.
var marks = []string{StartOfText, EndOfText, "'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}

// words cuts cleaned text as the published pattern does: a special token, an
// English contraction, a run of letters, one number character, or a run of
// anything else that is not white space.
func words(text string) []string {
	var out []string
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case unicode.IsSpace(r):
			text = text[n:]
			continue
		case r == '\'' || r == '<':
			if m := mark(text); m > 0 {
				n = m
			} else {
				n = run(text, other)
			}
		case unicode.IsLetter(r):
			n = run(text, unicode.IsLetter)
		case !unicode.IsNumber(r):
			n = run(text, other)
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

func other(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

// run is the length in bytes of the longest prefix whose characters all satisfy is.
func run(text string, is func(rune) bool) int {
	if i := strings.IndexFunc(text, func(r rune) bool { return !is(r) }); i >= 0 {
		return i
	}
	return len(text)
}

// mark is the length in bytes of the mark that text starts with, or 0.
func mark(text string) int {
	for _, m := range marks {
		end, left := 0, utf8.RuneCountInString(m)
		for ; left > 0 && end < len(text); left-- {
			_, n := utf8.DecodeRuneInString(text[end:])
			end += n
		}
		if left == 0 && strings.EqualFold(text[:end], m) {
			return end
		}
	}
	return 0
}
