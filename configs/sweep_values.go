package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Values are numbers nested by labels: a tree whose leaves are a mean with or without a standard deviation.
type Values struct {
	leaf      bool
	mean, std float64
	hasStd    bool
	under     map[string]*Values
}

// Empty reports whether there are no numbers.
func (v Values) Empty() bool { return !v.leaf && len(v.under) == 0 }

// UnmarshalYAML reads a number, [mean, standard deviation] or a map of labels.
func (v *Values) UnmarshalYAML(n *yaml.Node) error {
	*v = Values{}
	switch n.Kind {
	case yaml.MappingNode:
		return n.Decode(&v.under)
	case yaml.SequenceNode:
		var list []float64
		if err := n.Decode(&list); err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("line %d: %d numbers in a list; a value is a mean or [mean, standard deviation]", n.Line,
				len(list))
		}
		v.leaf, v.hasStd, v.mean, v.std = true, true, list[0], list[1]
	default:
		v.leaf = true
		if n.Tag == "!!null" {
			return fmt.Errorf("line %d: a value is missing; leave its label out where the paper has none", n.Line)
		}
		if err := n.Decode(&v.mean); err != nil {
			return err
		}
	}
	if math.IsNaN(v.mean) || math.IsInf(v.mean, 0) || math.IsInf(v.std, 0) || !(v.std >= 0) {
		return fmt.Errorf("line %d: %v ± %v is not a mean with a standard deviation", n.Line, v.mean, v.std)
	}
	return nil
}

// plain returns the tree as maps, lists and numbers.
func (v Values) plain() any {
	switch {
	case v.hasStd:
		return []float64{v.mean, v.std}
	case v.leaf:
		return v.mean
	}
	out := map[string]any{}
	for label, under := range v.under {
		if under != nil {
			out[label] = under.plain()
		}
	}
	return out
}

// MarshalYAML writes the form that UnmarshalYAML reads.
func (v Values) MarshalYAML() (any, error) { return v.plain(), nil }

// MarshalJSON writes the same form as JSON.
func (v Values) MarshalJSON() ([]byte, error) { return json.Marshal(v.plain()) }

// UnmarshalJSON reads JSON, which is YAML.
func (v *Values) UnmarshalJSON(b []byte) error { return yaml.Unmarshal(b, v) }

// check checks the labels against the axes of the values. Leaves must be below the last axis.
func (v *Values) check(at string, by []string, axes []Axis) error {
	if len(by) == 0 {
		if v == nil || !v.leaf {
			return fmt.Errorf("%s: a number is expected here; name the axes that values are nested by under "+
				"card.numbers.by", at)
		}
		return nil
	}
	if v == nil || v.leaf {
		return fmt.Errorf("%s: labels of axis %s are expected here (card.numbers.by)", at, by[0])
	}
	i := slices.IndexFunc(axes, func(a Axis) bool { return a.Name == by[0] })
	for _, label := range slices.Sorted(maps.Keys(v.under)) {
		if i >= 0 && label != AverageLabel && !slices.Contains(axes[i].Labels(), label) {
			return fmt.Errorf("%s: axis %s has no label %q; it has %s", at, by[0], label,
				strings.Join(append(axes[i].Labels(), AverageLabel), ", "))
		}
		if err := v.under[label].check(at+"."+label, by[1:], axes); err != nil {
			return err
		}
	}
	return nil
}
