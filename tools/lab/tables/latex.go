package tables

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// LaTeX writes tables for the package booktabs, each in its own environment. A document with \usepackage{booktabs}
// compiles them with pdfLaTeX. Special characters in labels are escaped.
func LaTeX(w io.Writer, tables ...*Table) error { return write(w, tables, (*Table).latex) }

func (t *Table) latex() string {
	var out strings.Builder
	caption := append([]string{sentence(t.Title)}, t.Sentences("Bold", "Underlined", "In brackets")...)
	fmt.Fprintf(&out, "\\begin{table}[t]\n\\centering\n\\caption{%s}\n", latexText(strings.Join(caption, " ")))
	fmt.Fprintf(&out, "\\begin{tabular}{%s%s}\n\\toprule\n", strings.Repeat("l", len(t.RowAxes)),
		strings.Repeat("r", len(t.Columns)))
	out.WriteString(t.latexHead())
	out.WriteString("\\midrule\n")

	for i, r := range t.Rows {
		if r.Average && i > 0 {
			out.WriteString("\\midrule\n")
		}
		cells := escapeAll(latexText, r.DisplayLabels())
		for _, c := range r.Cells {
			cells = append(cells, t.latexCell(c))
		}
		out.WriteString(strings.Join(cells, " & ") + " \\\\\n")
	}

	out.WriteString("\\bottomrule\n\\end{tabular}\n")
	var below []string
	for i, n := range t.Notes {
		below = append(below, fmt.Sprintf("{[}%d{]} %s", i+1, latexText(sentence(n))))
	}

	for _, r := range t.Remarks {
		below = append(below, latexText(r))
	}

	if len(below) > 0 {
		out.WriteString("\n\\smallskip\n{\\footnotesize\\raggedright " + strings.Join(below, " \\par\n") + " \\par}\n")
	}

	out.WriteString("\\end{table}\n")
	return out.String()
}

// latexHead returns one line for each axis in the columns. Neighbours with the same labels up to that axis share a
// head.
func (t *Table) latexHead() string {
	levels := max(1, len(t.ColAxes))
	var heads [][]string
	for j := range t.Columns {
		h := t.Head(j)
		heads = append(heads, append(h, make([]string, levels-len(h))...)) // the head of an average has one line
	}

	var out strings.Builder
	for level := range levels {
		cells, rules := make([]string, len(t.RowAxes)), ""
		if level == levels-1 {
			cells = escapeAll(latexText, t.RowAxes)
		}

		for j := 0; j < len(heads); {
			n := 1
			for level < levels-1 && j+n < len(heads) && slices.Equal(heads[j][:level+1], heads[j+n][:level+1]) {
				n++
			}
			head := latexText(heads[j][level])
			if n > 1 {
				head = fmt.Sprintf("\\multicolumn{%d}{c}{%s}", n, head)
				rules += fmt.Sprintf("\\cmidrule(lr){%d-%d}", len(t.RowAxes)+j+1, len(t.RowAxes)+j+n)
			}
			cells = append(cells, head)
			j += n
		}

		out.WriteString(strings.Join(cells, " & ") + " \\\\\n")
		if rules != "" {
			out.WriteString(rules + "\n")
		}
	}

	return out.String()
}

func (t *Table) latexCell(c Cell) string {
	cellParts := t.Parts(c)
	value := latexText(cellParts.Mean)
	switch {
	case c.Best:
		value = "\\textbf{" + value + "}"
	case c.Second && t.second:
		value = "\\underline{" + value + "}"
	}

	if cellParts.Std != "" {
		value += " {\\scriptsize $\\pm$ " + cellParts.Std + "}"
	}

	if cellParts.Paper != "" {
		cellParts.Paper = "{\\scriptsize " + latexText(cellParts.Paper) + "}"
	}

	if cellParts.Mark != "" {
		cellParts.Mark = "\\textsuperscript{" + latexText(cellParts.Mark) + "}"
	}

	return join(value, cellParts.Paper, cellParts.Mark)
}

// sentence adds a full stop to a text if necessary.
func sentence(s string) string {
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

var latexEscapes = strings.NewReplacer(`\`, `\textbackslash{}`, "{", `\{`, "}", `\}`, "$", `\$`, "&", `\&`, "%", `\%`,
	"#", `\#`, "_", `\_`,
	"^", `\textasciicircum{}`, "~", `\textasciitilde{}`, "<", `$<$`, ">", `$>$`, "|", `$|$`, "[", "{[}", "]", "{]}",
	`"`, `''`,
	"±", `$\pm$`, "−", `$-$`, "×", `$\times$`, "–", "--", "≤", `$\le$`, "≥", `$\ge$`, "→", `$\to$`,
	"↑", `$\uparrow$`, "↓", `$\downarrow$`, "…", `\dots{}`,
	"α", `$\alpha$`, "β", `$\beta$`, "γ", `$\gamma$`, "δ", `$\delta$`, "ε", `$\epsilon$`, "η", `$\eta$`, "λ",
	`$\lambda$`, "μ", `$\mu$`,
	"ρ", `$\rho$`, "σ", `$\sigma$`, "τ", `$\tau$`, "Δ", `$\Delta$`, "\n", " ", "\r", " ")

// latexText escapes special characters and writes mathematical characters in math mode.
func latexText(s string) string { return latexEscapes.Replace(s) }
