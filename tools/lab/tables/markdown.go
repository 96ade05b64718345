package tables

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"promptfed/runtime/convert"
)

// Markdown writes tables in GitHub's Markdown, each under a second-level heading.
func Markdown(w io.Writer, tables ...*Table) error { return write(w, tables, (*Table).markdown) }

func write(w io.Writer, tables []*Table, text func(*Table) string) error {
	texts := convert.Slice(tables, text)
	_, err := io.WriteString(w, strings.Join(texts, "\n"))
	return err
}

func (t *Table) markdown() string {
	rows := [][]string{escapeAll(markdownText, t.Heads())}
	for _, r := range t.Rows {
		line := escapeAll(markdownText, r.DisplayLabels())
		for _, c := range r.Cells {
			line = append(line, t.markdownCell(c))
		}
		rows = append(rows, line)
	}

	var out strings.Builder
	fmt.Fprintf(&out, "## %s\n\n", markdownText(t.Title))
	if c := t.Sentences("Bold", "Underlined", "In brackets"); len(c) > 0 {
		fmt.Fprintf(&out, "%s\n\n", markdownText(strings.Join(c, " ")))
	}

	out.WriteString(grid(rows, len(t.RowAxes)).RenderMarkdown() + "\n")
	for i, n := range t.Notes {
		fmt.Fprintf(&out, "\n\\[%d\\] %s\n", i+1, markdownText(n))
	}

	for i, r := range t.Remarks {
		if i == 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "- %s\n", markdownText(r))
	}

	return out.String()
}

// markdownCell emphasises the mean: bold for the best, underlined for the second best.
func (t *Table) markdownCell(c Cell) string {
	cellParts := t.Parts(c)
	value := markdownText(cellParts.Mean)
	if cellParts.Std != "" {
		value += " ± " + cellParts.Std
	}

	switch {
	case c.Best:
		value = "**" + value + "**"
	case c.Second && t.second:
		value = "<ins>" + value + "</ins>"
	}

	return join(value, cellParts.Paper, markdownText(cellParts.Mark))
}

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, ">", `\>`, "[", `\[`,
	"]", `\]`, "#", `\#`, "~", `\~`, "\n", " ", "\r", " ")

// markdownText escapes Markdown's special characters, except bars, which the table escapes.
func markdownText(s string) string { return markdownEscapes.Replace(s) }

func escapeAll(escape func(string) string, list []string) []string {
	return convert.Slice(list, escape)
}

// grid returns rows as a go-pretty table with text in the first columns and numbers in the others. The first row is the
// header.
func grid(rows [][]string, texts int) table.Writer {
	writer := table.NewWriter()
	var columns []table.ColumnConfig
	for i := range rows[0] {
		align := text.AlignRight
		if i < texts {
			align = text.AlignLeft
		}
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}

	writer.SetColumnConfigs(columns)
	for i, cells := range rows {
		r := make(table.Row, len(cells))
		for j, c := range cells {
			r[j] = c
		}
		if i == 0 {
			writer.AppendHeader(r)
		} else {
			writer.AppendRow(r)
		}
	}

	return writer
}
