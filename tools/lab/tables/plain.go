package tables

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"promptfed/runtime/convert"
)

// plainRule is the length of the longest rule under a header.
const plainRule = 120

// PlainText lays out rows in columns for a terminal. The first row is the header. The given number of first columns is
// text, and the others are numbers.
func PlainText(rows [][]string, texts int) string {
	g := grid(rows, texts)
	style := table.StyleDefault
	style.Format.Header = 0
	style.Options = table.Options{SeparateHeader: true, SeparateColumns: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", ""
	style.Box.MiddleVertical, style.Box.MiddleSeparator, style.Box.MiddleHorizontal = "  ", "  ", "-"
	g.SetStyle(style)
	var out strings.Builder
	for line := range strings.Lines(g.Render() + "\n") {
		text := strings.TrimRight(line, " \n") // the last column has no padding, and its rule is no longer than a line
		if strings.Trim(text, "- ") == "" {
			text = text[:min(len(text), plainRule)]
		}
		out.WriteString(text + "\n")
	}

	return out.String()
}

// MarkdownRows lays out rows like PlainText, in GitHub's Markdown.
func MarkdownRows(rows [][]string, texts int) string {
	escaped := convert.Slice(rows, func(r []string) []string { return escapeAll(markdownText, r) })
	return grid(escaped, texts).RenderMarkdown() + "\n"
}
