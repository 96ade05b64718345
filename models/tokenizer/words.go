package tokenizer

import "regexp"

// clipWords is the published pattern. Only the special tokens and contractions ignore
// case: folding would put characters that are no letters among the letters.
// Clean leaves the plain space as the only white space.
var clipWords = regexp.MustCompile(`(?i:<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d)` +
	`|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+`)

// words cuts cleaned text into special tokens, English contractions, runs of
// letters, single number characters, and runs of anything else.
func words(text string) []string { return clipWords.FindAllString(text, -1) }
