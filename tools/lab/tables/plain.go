package tables

import (
	"github.com/jedib0t/go-pretty/v6/table"
)

// PlainText lays out rows in columns for a terminal. The first row is the header. The given number of first columns is
// text, and the others are numbers.
func PlainText(rows [][]string, texts int) string {
	g := grid(texts, rows[0])
	style := table.StyleDefault
	style.Format.Header = 0
	style.Options = table.Options{SeparateHeader: true, SeparateColumns: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", ""
	style.Box.MiddleVertical, style.Box.MiddleSeparator, style.Box.MiddleHorizontal = "  ", "  ", "-"
	g.SetStyle(style)
	for _, r := range rows[1:] {
		g.AppendRow(row(r))
	}
	return g.Render() + "\n"
}

// MarkdownRows lays out rows like Plain, in GitHub's Markdown.
func MarkdownRows(rows [][]string, texts int) string {
	g := grid(texts, escapeAll(markdownText, rows[0]))
	for _, r := range rows[1:] {
		g.AppendRow(row(escapeAll(markdownText, r)))
	}
	return g.RenderMarkdown() + "\n"
}

// String returns the whole table as text, with its caption and notes.
func (t *Table) String() string { return t.Terminal(View{All: true, Definitions: true}) }
