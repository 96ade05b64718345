package tokenizer

import "regexp"

// clipWords is the published pattern. Only special tokens and contractions ignore case: case folding would treat some
// non-letters as letters. After Clean, plain spaces are the only white space.
var clipWords = regexp.MustCompile(`(?i:<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d)` +
	`|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+`)

// words splits cleaned text into special tokens, English contractions, runs of letters, single number characters, and
// runs of other characters.
func words(text string) []string { return clipWords.FindAllString(text, -1) }
