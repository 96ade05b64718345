package tables

import (
	"fmt"
	"strings"
)

// Text is a table of texts, for data without seeds.
type Text struct {
	Title   string
	Caption []string
	Heads   []string
	Texts   int // columns with text; columns with numbers follow
	Rows    [][]string
}

func (t *Text) markdown() string {
	g := grid(t.Texts, escapeAll(markdownText, t.Heads))
	for _, r := range t.Rows {
		g.AppendRow(row(escapeAll(markdownText, r)))
	}
	return fmt.Sprintf("## %s\n\n%s\n\n%s\n", markdownText(t.Title), markdownText(strings.Join(t.Caption, " ")),
		g.RenderMarkdown())
}

func (t *Text) latex() string {
	var b strings.Builder
	latexBegin(&b, t.Title, t.Caption, t.Texts, len(t.Heads)-t.Texts)
	lines := append([][]string{t.Heads}, t.Rows...)
	for i, r := range lines {
		b.WriteString(strings.Join(escapeAll(latexText, r), " & ") + " \\\\\n")
		if i == 0 {
			b.WriteString("\\midrule\n")
		}
	}
	b.WriteString("\\bottomrule\n\\end{tabular}\n\\end{table}\n")
	return b.String()
}
