package tables

import (
	"fmt"
	"strings"

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

// String is the table for a terminal, with what belongs to it.
func (t *Table) String() string {
	rows := [][]string{t.Heads()}
	for _, r := range t.Rows {
		line := r.Shown()
		for _, c := range r.Cells {
			text := t.Text(c)
			if c.Best {
				text = "*" + text
			}
			line = append(line, text)
		}
		rows = append(rows, line)
	}
	var b strings.Builder
	b.WriteString(t.Title + "\n" + Plain(rows, len(t.RowAxes)))
	for _, s := range t.Sentences("*", "", "In brackets") {
		b.WriteString(s + "\n")
	}
	for i, n := range t.Notes {
		fmt.Fprintf(&b, "[%d] %s\n", i+1, n)
	}
	return b.String()
}
