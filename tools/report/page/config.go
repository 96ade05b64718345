package page

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxConfigs is how many whole configurations a page prints.
const maxConfigs = 300

// leaf is one setting of a configuration: a scalar, or a list as a whole.
type leaf struct {
	key, value  string
	first, last int // lines of the text, from 1
}

// settings are the leaves of a YAML text in the order of the text; none where it is no YAML mapping.
func settings(text string) []leaf {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	var out []leaf
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			name := prefix + key.Value
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
				walk(name+".", value)
				continue
			}
			out = append(out, leaf{name, inline(value), key.Line, lastLine(value)})
		}
	}
	if doc.Content[0].Kind == yaml.MappingNode {
		walk("", doc.Content[0])
	}
	return out
}

// inline is a value on one line.
func inline(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		items := make([]string, len(n.Content))
		for i, c := range n.Content {
			items[i] = inline(c)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case yaml.MappingNode:
		var items []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			items = append(items, n.Content[i].Value+": "+inline(n.Content[i+1]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return n.Value
}

func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// differences are the settings that are not the same in all configurations, in the order in which they first appear,
// and their values: [run][setting], empty where a configuration has no such setting. The name of a run is no setting.
func differences(runs []Run) (keys []string, values [][]string) {
	all := make([]map[string]string, len(runs))
	var order []string
	seen := map[string]bool{}
	for i, r := range runs {
		all[i] = map[string]string{}
		for _, l := range settings(r.Config) {
			all[i][l.key] = l.value
			if !seen[l.key] && l.key != "name" {
				seen[l.key] = true
				order = append(order, l.key)
			}
		}
	}
	for _, key := range order {
		first, had := all[0][key]
		for _, m := range all[1:] {
			if v, has := m[key]; v != first || has != had {
				keys = append(keys, key)
				break
			}
		}
	}
	for _, m := range all {
		row := make([]string, len(keys))
		for i, key := range keys {
			row[i] = m[key]
		}
		values = append(values, row)
	}
	return keys, values
}

// differenceTable has a row per run and a column per setting in which runs differ; no columns where none does.
func differenceTable(runs []Run) Table {
	if len(runs) < 2 {
		return Table{}
	}
	keys, values := differences(runs)
	if len(keys) == 0 {
		return Table{}
	}
	t := Table{Title: "Where the configurations differ", Columns: []Column{{Name: "run", Text: true}}}
	for _, key := range keys {
		t.Columns = append(t.Columns, Column{Name: key, Text: true})
	}
	for i, r := range runs {
		row := Row{Cells: []Cell{{Text: r.Name}}}
		for _, v := range values[i] {
			row.Cells = append(row.Cells, Cell{Text: v})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// configView is a configuration as text; lines that say what other runs have otherwise are marked.
type configView struct {
	Name  string
	Lines []configLine
}

type configLine struct {
	Indent string // blanks before a marked text
	Text   string
	Marked bool
}

func configViews(runs []Run) []configView {
	differs := map[string]bool{}
	if len(runs) > 1 {
		keys, _ := differences(runs)
		for _, key := range keys {
			differs[key] = true
		}
	}
	var out []configView
	for _, r := range runs[:min(len(runs), maxConfigs)] {
		if r.Config == "" {
			continue
		}
		v := configView{Name: r.Name}
		for line := range strings.SplitSeq(strings.TrimRight(r.Config, "\n"), "\n") {
			v.Lines = append(v.Lines, configLine{Text: line})
		}
		for _, l := range settings(r.Config) {
			if differs[l.key] {
				for n := l.first; n <= l.last && n <= len(v.Lines); n++ {
					line := &v.Lines[n-1]
					if !line.Marked {
						text := strings.TrimLeft(line.Text, " ")
						line.Indent, line.Text, line.Marked = line.Text[:len(line.Text)-len(text)], text, true
					}
				}
			}
		}
		out = append(out, v)
	}
	return out
}
