package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The place of a table is a pair of lines: "<!-- from the code: NAME -->" and "<!-- end -->".
var (
	opening = regexp.MustCompile(`(?m)^<!-- from the code: ([a-z-]+) -->$`)
	closing = "\n<!-- end -->"
)

// fill replaces the tables of a text.
func fill(text string, tables map[string]string) (string, error) {
	var out strings.Builder
	for {
		at := opening.FindStringSubmatchIndex(text)
		if at == nil {
			out.WriteString(text)
			return out.String(), nil
		}

		name := text[at[2]:at[3]]
		table, ok := tables[name]
		if !ok {
			return "", fmt.Errorf("there is no table %q; there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(tables)), ", "))
		}

		end := strings.Index(text[at[1]:], closing)
		if next := opening.FindStringIndex(text[at[1]:]); end < 0 || next != nil && next[0] < end {
			return "", fmt.Errorf("table %q has no line %q after it", name, strings.TrimSpace(closing))
		}

		out.WriteString(text[:at[1]] + "\n\n" + strings.TrimSpace(table) + "\n")
		text = text[at[1]+end:]
	}
}

// code formats text as code. It returns "" for an empty text.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
