package tables

import (
	"github.com/jedib0t/go-pretty/v6/table"
)

// Plain sets rows in columns for a terminal; the first row is the header, and the first texts columns are text, the
// others numbers.
func Plain(rows [][]string, texts int) string {
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

// MarkdownRows sets rows as Plain does, in GitHub's Markdown.
func MarkdownRows(rows [][]string, texts int) string {
	g := grid(texts, escapeAll(markdownText, rows[0]))
	for _, r := range rows[1:] {
		g.AppendRow(row(escapeAll(markdownText, r)))
	}
	return g.RenderMarkdown() + "\n"
}

// String is the whole table as text, with what belongs to it.
func (t *Table) String() string { return t.Terminal(View{All: true, Definitions: true}) }
