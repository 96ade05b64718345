package checks

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
)

// A Count is a size of the project that budget.txt holds.
type Count struct {
	What string
	N    int
	step int // the budget holds the next multiple of it, so that a small change keeps the file
}

var (
	generatedGo    = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	generatedTable = regexp.MustCompile(`(?ms)^<!-- from the code: ([a-z-]+) -->$.*?^<!-- end -->$`)
	row            = regexp.MustCompile("(?m)^\\| `")
)

// Counts counts the Go code without generated files, the words of documentation outside generated tables, and the keys
// and method options that these tables list. The files have paths below the repository's root.
func Counts(files map[string][]byte) []Count {
	code, tokens := Count{"lines of Go without tests", 0, 100}, Count{"tokens of Go without tests", 0, 1000}
	tests, words := Count{"lines of Go tests", 0, 100}, Count{"words of documentation beside generated tables", 0, 100}
	keys, options := Count{"configuration keys", 0, 1}, Count{"method options", 0, 1}
	for name, text := range files {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			tests.N += bytes.Count(text, []byte("\n"))
		case strings.HasSuffix(name, ".go"):
			if !generatedGo.Match(text) {
				code.N += bytes.Count(text, []byte("\n"))
				tokens.N += tokensOf(text)
			}
		case strings.HasSuffix(name, ".md"):
			for _, t := range generatedTable.FindAllSubmatch(text, -1) {
				switch string(t[1]) {
				case "configuration":
					keys.N += len(row.FindAll(t[0], -1))
				case "options":
					options.N += len(row.FindAll(t[0], -1))
				}
			}
			words.N += len(bytes.Fields(generatedTable.ReplaceAll(text, nil)))
		}
	}
	return []Count{code, tokens, tests, words, keys, options}
}

// tokensOf counts the tokens of Go code without comments and without the semicolons that line ends stand for.
func tokensOf(source []byte) int {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), source, nil, 0)
	for n := 0; ; n++ {
		switch _, t, text := s.Scan(); {
		case t == token.EOF:
			return n
		case t == token.SEMICOLON && text == "\n":
			n--
		}
	}
}

// Budget returns the text of budget.txt for counts.
func Budget(counts []Count) string {
	var b strings.Builder
	for _, c := range counts {
		fmt.Fprintf(&b, "%d %s\n", (c.N+c.step-1)/c.step*c.step, c.What)
	}
	return b.String()
}
