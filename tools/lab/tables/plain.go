package tables

import (
	"github.com/jedib0t/go-pretty/v6/table"
)

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
	return g.Render() + "\n"
}

// MarkdownRows lays out rows like PlainText, in GitHub's Markdown.
func MarkdownRows(rows [][]string, texts int) string {
	var escaped [][]string
	for _, r := range rows {
		escaped = append(escaped, escapeAll(markdownText, r))
	}
	return grid(escaped, texts).RenderMarkdown() + "\n"
}
