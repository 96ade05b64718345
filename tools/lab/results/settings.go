package results

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting is one setting of a configuration: a scalar, or a list as a whole.
type Setting struct {
	Key         string // such as train.lr
	Value       string // on one line
	first, last int    // lines of the text, from 1
}

// Settings returns the settings of a YAML text in the order of the text, or none for a text that is not a YAML mapping.
func Settings(text string) (out []Setting) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}

	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
				walk(prefix+key.Value+".", value)
				continue
			}
			s := Setting{prefix + key.Value, value.Value, key.Line, lastLine(value)}
			if value.Kind != yaml.ScalarNode {
				value.Style = yaml.FlowStyle
				line, _ := yaml.Marshal(value) // of a node that was just read
				s.Value = strings.Join(strings.Fields(string(line)), " ")
			}
			out = append(out, s)
		}
	}

	walk("", doc.Content[0])
	return out
}

func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// ConfigDifferences returns the settings that differ between configurations, in the order of first appearance, their
// values [run][setting] (nil for a missing setting), and the equal settings with their values. It ignores empty
// configurations, and the name of a run.
func ConfigDifferences(configs []string) (keys []string, values [][]*string, same [][2]string) {
	all := make([]map[string]string, len(configs))
	var order []string
	seen := map[string]bool{}
	first := -1
	for i, config := range configs {
		if config == "" {
			continue
		}
		if all[i] = map[string]string{}; first < 0 {
			first = i
		}
		for _, l := range Settings(config) {
			all[i][l.Key] = l.Value
			if !seen[l.Key] && l.Key != "name" {
				seen[l.Key] = true
				order = append(order, l.Key)
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

// ConfigLines returns the lines of the run's configuration, each with the keys of the settings on it.
func (r *Run) ConfigLines() (out [][]string) {
	if r.Config == "" {
		return nil
	}

	for line := range strings.SplitSeq(strings.TrimRight(r.Config, "\n"), "\n") {
		out = append(out, []string{line})
	}

	for _, s := range Settings(r.Config) {
		for n := s.first; n <= s.last && n <= len(out); n++ {
			out[n-1] = append(out[n-1], s.Key)
		}
	}

	return out
}
