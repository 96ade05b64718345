package checks

import (
	"regexp"
	"strings"
)

var (
	promising = regexp.MustCompile(`(?i)\b(never|cannot|no client|same bytes|exactly)\b`)
	namesTest = regexp.MustCompile("`(Test|Fuzz)[A-Z]")
	noProse   = regexp.MustCompile("(?ms)^ *```.*?^ *```|\\]\\([^)\\s]*\\)") // code and the targets of links
	paragraph = regexp.MustCompile(`\n\s*\n|\n(?:- |\d+\. |\|)`)
	sentence  = regexp.MustCompile(`[.:;] `)
)

// Promises returns the sentences of a page that have a word of a promise and whose paragraph names no test.
func Promises(page string) (out []string) {
	for _, text := range paragraph.Split(noProse.ReplaceAllString(page, ""), -1) {
		if namesTest.MatchString(text) || strings.HasPrefix(text, "#") {
			continue
		}
		for _, s := range sentence.Split(strings.Join(strings.Fields(text), " "), -1) {
			if promising.MatchString(s) {
				out = append(out, s)
			}
		}
	}

	return out
}
