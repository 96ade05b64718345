package configs

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ambiguous are whole numbers with a leading 0: YAML reads 010 as 8, and a text such as 007 loses its zeros.
var ambiguous = regexp.MustCompile(`^[-+]?0[0-9_]+$`)

// scan reads a YAML text into out, and notes the line of every dotted key, for an alias that of the alias. It
// refuses a text with two readings: a repeated key, also in other capitals, or once dotted and once nested, because one
// value would hide the other; and a number with a leading 0. In sections of a sweep file and of a table of sizes, keys
// are case-sensitive, so that scan checks only numbers there.
func (f *parsed) scan(text []byte, out any) error {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return err
	}
	exactKeys := append(sectionNames(), "counts")
	first := map[string]*yaml.Node{}
	var walk func(at string, n *yaml.Node, fold bool) error
	walk = func(at string, n *yaml.Node, fold bool) error {
		switch n.Kind {
		case yaml.ScalarNode:
			if n.Style == 0 && ambiguous.MatchString(n.Value) {
				return fmt.Errorf("%s: %s begins with 0 and can be read in several ways; write the number without it, "+
					"or a text in quotes", f.place(n.Line), n.Value)
			}
		case yaml.SequenceNode:
			for i, item := range n.Content {
				place := fmt.Sprintf("%s[%d]", at, i)
				f.lines[place] = item.Line
				if err := walk(place, item, fold); err != nil {
					return err
				}
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, fold := n.Content[i], fold && !(at == "" && slices.Contains(exactKeys, n.Content[i].Value))
				path := strings.TrimPrefix(at+"."+strings.ToLower(key.Value), ".")
				if had := first[path]; fold && had != nil && key.Value != "<<" {
					return fmt.Errorf("%s: the key %s is given twice, as %s in line %d too; keep one of the two",
						f.place(key.Line), path, had.Value, had.Line)
				}
				first[path], f.lines[path] = key, key.Line
				if err := walk(path, n.Content[i+1], fold); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk("", root.Content[0], true); err != nil {
		return &placedError{err}
	}
	return root.Decode(out)
}

// placedError is an error that names its place.
type placedError struct{ error }

// withValues refuses keys of a struct without a value, which would keep their defaults. A section or a map with free
// keys may be empty, for example if all its lines are comments.
func withValues(at string, m map[string]any, t reflect.Type) error {
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		field, ok := fields[strings.ToLower(key)]
		if !ok {
			continue // another check reports it
		}
		below, isMap := m[key].(map[string]any)
		isSection := field.Kind() == reflect.Struct || field.Kind() == reflect.Map
		if m[key] == nil && !isSection {
			return &keyError{strings.ToLower(at + key), fmt.Errorf("%s has no value; give one or remove the line",
				at+key)}
		}
		if field.Kind() == reflect.Struct && isMap {
			if err := withValues(at+key+".", below, field); err != nil {
				return err
			}
		}
	}
	return nil
}
