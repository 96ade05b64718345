package page

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// leaf is one setting of a configuration: a scalar, or a list as a whole.
type leaf struct {
	key, value  string
	first, last int // lines of the text, from 1
}

// settings returns the leaves of a YAML text in the order of the text, or none for a text that is not a YAML mapping.
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

// inline formats a value on one line.
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

// ConfigDifferences returns the settings that differ between configurations, in the order of first appearance, their
// values [run][setting] (nil for a missing setting), and the equal settings with their values. It ignores runs without
// a configuration, and the name of a run.
func ConfigDifferences(runs []Run) (keys []string, values [][]*string, same [][2]string) {
	all := make([]map[string]string, len(runs))
	var order []string
	seen := map[string]bool{}
	first := -1
	for i, r := range runs {
		if r.Config == "" {
			continue
		}
		if all[i] = map[string]string{}; first < 0 {
			first = i
		}
		for _, l := range settings(r.Config) {
			all[i][l.key] = l.value
			if !seen[l.key] && l.key != "name" {
				seen[l.key] = true
				order = append(order, l.key)
			}
		}
	}
	for _, key := range order {
		is, had := all[first][key]
		if slices.ContainsFunc(all, func(m map[string]string) bool {
			v, has := m[key]
			return m != nil && (v != is || has != had)
		}) {
			keys = append(keys, key)
		} else {
			same = append(same, [2]string{key, is})
		}
	}
	for _, m := range all {
		row := make([]*string, len(keys))
		for i, key := range keys {
			if v, has := m[key]; has {
				row[i] = &v
			}
		}
		values = append(values, row)
	}
	return keys, values, same
}

// configLines returns the lines of a configuration. A line of a differing setting is a list with its text.
func configLines(text string, differs []string) []any {
	if text == "" {
		return nil
	}
	var out []any
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		out = append(out, line)
	}
	for _, l := range settings(text) {
		for n := l.first; slices.Contains(differs, l.key) && n <= l.last && n <= len(out); n++ {
			if line, ok := out[n-1].(string); ok {
				out[n-1] = []string{line}
			}
		}
	}
	return out
}
