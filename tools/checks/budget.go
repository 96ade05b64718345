package checks

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// BudgetFile holds the sizes of the project, so that growth is a decision. Its last line, the seconds of .ci/run on an
// idle machine, is written by hand.
const BudgetFile = "tools/checks/budget.txt"

// A Count is a size of the project that BudgetFile holds.
type Count struct {
	What string
	N    int
	step int // the budget holds the next multiple of it, so that a small change keeps the file
}

var (
	generatedGo    = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	generatedTable = regexp.MustCompile(`(?ms)^<!-- from the code: ([a-z-]+) -->$.*?^<!-- end -->$`)
	row            = regexp.MustCompile("(?m)^\\| `")
	byHand         = regexp.MustCompile(`(?m)^[0-9]+ seconds of \.ci/run on two idle cores\n`)
)

// Counts counts the Go code without generated files, blank lines and comments, the words of documentation outside
// generated tables, and the keys and method options that these tables list. The files have paths below the root of the
// repository.
func Counts(files map[string][]byte) []Count {
	code, tokens := Count{"lines of Go code without tests", 0, 100}, Count{"tokens of Go without tests", 0, 1000}
	tests, words := Count{"lines of Go tests", 0, 100}, Count{"words of documentation beside generated tables", 0, 100}
	keys, options := Count{"configuration keys", 0, 1}, Count{"method options", 0, 1}
	for name, text := range files {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			tests.N += bytes.Count(text, []byte("\n"))
		case strings.HasSuffix(name, ".go"):
			if !generatedGo.Match(text) {
				lines, all := codeOf(text)
				code.N += lines
				tokens.N += all
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

// codeOf counts the tokens of Go code without comments and without the semicolons that line ends stand for, and the
// lines with such a token.
func codeOf(source []byte) (lines, tokens int) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, 0)
	last := 0 // the last line that is counted
	for {
		at, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return lines, tokens
		case kind == token.SEMICOLON && text == "\n":
			continue
		}
		tokens++
		first := file.Line(at)
		end := first + strings.Count(text, "\n") // of a raw string
		lines += end - max(first-1, last)
		last = end
	}
}

// Budget returns the text of BudgetFile for the files that git tracks below root, and whether the file there holds it,
// give or take one step of each count. changed has files that are about to be written, by path below root.
func Budget(root string, changed map[string][]byte) (text string, current bool, err error) {
	tracked, ok := Tracked(root)
	if !ok {
		return "", false, fmt.Errorf("%s counts files that git tracks: %s is no git checkout", BudgetFile, root)
	}

	files := map[string][]byte{}
	for _, f := range tracked {
		if strings.HasSuffix(f, ".go") || f == "README.md" || strings.HasPrefix(f, "docs/") {
			text, err := os.ReadFile(filepath.Join(root, f))
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				return "", false, err
			}
			files[f] = text
		}
	}

	maps.Copy(files, changed)
	is, err := os.ReadFile(filepath.Join(root, BudgetFile))
	if err != nil {
		return "", false, err
	}

	seconds := byHand.Find(is)
	if seconds == nil {
		return "", false, fmt.Errorf("%s has no line that matches %s", BudgetFile, byHand)
	}

	counts := Counts(files)
	return budgetText(counts) + string(seconds), near(string(is), counts), nil
}

func budgetText(counts []Count) string {
	var b strings.Builder
	for _, c := range counts {
		fmt.Fprintf(&b, "%d %s\n", c.rounded(), c.What)
	}
	return b.String()
}

// rounded is the next multiple of the count's step.
func (c Count) rounded() int { return (c.N + c.step - 1) / c.step * c.step }

// near reports whether the text of a budget has a line for each count, at most one step away from it.
func near(text string, counts []Count) bool {
	held := map[string]int{}
	for line := range strings.Lines(text) {
		number, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return false
		}
		held[what] = n
	}

	for _, c := range counts {
		n, ok := held[c.What]
		if off := n - c.rounded(); !ok || off > c.step || off < -c.step {
			return false
		}
	}

	return true
}
