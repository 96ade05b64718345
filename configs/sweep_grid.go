package configs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"promptfed/federation/configtags"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/oneline"
)

// reservedAxes are names that reports use for something else than an axis of a sweep.
var reservedAxes = []string{DomainAxis, MetricAxis, "seed"}

// axes checks the axes of the section and expands their short forms.
func (s SweepSection) axes() ([]Axis, error) {
	var out []Axis
	seen := map[string]bool{}
	for i, section := range s.Axes {
		switch {
		case section.Name == "":
			return nil, fmt.Errorf("sweep.axes[%d] has no name", i)
		case strings.ContainsFunc(section.Name, unicode.IsControl):
			return nil, fmt.Errorf("sweep.axes[%d]: %q is more than one line", i, section.Name)
		case slices.Contains(reservedAxes, section.Name):
			return nil, fmt.Errorf("sweep.axes: the name %q is reserved; give the axis another name", section.Name)
		case seen[section.Name]:
			return nil, fmt.Errorf("sweep.axes: two axes are called %s", section.Name)
		}

		seen[section.Name] = true
		points, err := section.points()
		if err != nil {
			return nil, fmt.Errorf("axis %s: %w", section.Name, err)
		}

		out = append(out, Axis{section.Name, points})
	}

	return out, nil
}

// gridAxis reads an axis as in train.lr=0.01,0.05. It has the name of the key, without its section if no other axis has
// that name.
func gridAxis(text string, others []AxisSection) (axis AxisSection, err error) {
	key, values, ok := strings.Cut(text, "=")
	why := ""
	if ok {
		err = scan([]byte("["+values+"]"), &axis.Values)
	}

	if !ok || key == "" || err != nil || len(axis.Values) == 0 {
		if err != nil {
			why = ": " + oneline.Error(err).Error()
		}
		return axis, fmt.Errorf("--grid %s: expected key=value,value, as in train.lr=0.01,0.05%s", text, why)
	}

	axis.Key, axis.Name = key, key[strings.LastIndexByte(key, '.')+1:]
	other := func(a AxisSection) bool { return a.Name == axis.Name && a.Key != key }
	if slices.Contains(reservedAxes, axis.Name) || slices.ContainsFunc(others, other) {
		axis.Name = key
	}

	return axis, nil
}

// methodOfFile returns the point of a method.onnx with the content, as the file may be temporary. Its label is the name
// that the file gives the method or, where other points have that label, the file's own name.
func methodOfFile(path string, others []PointSection) (PointSection, error) {
	content, err := atomicfile.ReadAtMost(path, layer.MaxFile)
	p := PointSection{Label: strings.TrimSuffix(methods.FileName(path, content), ".onnx")}
	if slices.ContainsFunc(others, func(o PointSection) bool { return o.Label == p.Label }) {
		p.Label = strings.TrimSuffix(filepath.Base(path), ".onnx")
	}
	p.Set = map[string]any{"method": "onnx", "options.file": string(layer.EmbedFile(p.Label+".onnx", content))}
	return p, err
}

func (a AxisSection) points() ([]PointSection, error) {
	points := slices.Clone(a.Points)
	if a.Key != "" || len(a.Values) > 0 {
		if len(points) > 0 {
			return nil, errors.New("it has points, and key and values too; use only one of these forms")
		}

		if a.Key == "" {
			return nil, errors.New("it has values but no key; add the key that they are for")
		}

		for _, v := range a.Values {
			p := PointSection{v.text, map[string]any{a.Key: v.value}}
			if a.Key == "method" && filepath.Ext(v.text) == ".onnx" {
				var err error
				if p, err = methodOfFile(v.text, points); err != nil {
					return nil, err
				}
			}
			points = append(points, p)
		}
	}

	if len(points) == 0 {
		return nil, errors.New("it has no points; list points with label and set, or key and values")
	}

	seen := map[string]bool{}
	for i, section := range points {
		switch {
		case strings.TrimSpace(section.Label) == "":
			return nil, fmt.Errorf("point %d has no label", i+1)
		case strings.ContainsFunc(section.Label, unicode.IsControl):
			return nil, fmt.Errorf("the label %q is more than one line", section.Label)
		case section.Label == AverageLabel:
			return nil, fmt.Errorf("the label %s is reserved for means; choose another", section.Label)
		case seen[section.Label]:
			return nil, fmt.Errorf("two points have the label %q", section.Label)
		case section.Set["seed"] != nil:
			return nil, fmt.Errorf("point %q sets seed; list seeds under sweep.seeds", section.Label)
		}
		seen[section.Label] = true
	}

	return points, nil
}

type pointKeys map[string]map[string]map[string]any

// added returns the axes with the keys that a section adds to their points. It is an error if the section's set, which
// comes last, overrides such a key.
func added(section string, points pointKeys, last map[string]any, base settings, axes []Axis) ([]Axis, error) {
	out := slices.Clone(axes)
	for _, name := range slices.Sorted(maps.Keys(points)) {
		labels := slices.Sorted(maps.Keys(points[name]))
		i, err := find(axes, name, labels)
		if err != nil {
			return nil, fmt.Errorf("%s.points: %w", section, err)
		}

		out[i].Points = slices.Clone(axes[i].Points)
		for j, p := range axes[i].Points {
			more := base.under(points[name][p.Label])
			for _, c := range more {
				for _, all := range base.under(last) {
					if _, ok := c.sets(all.key); ok {
						return nil, fmt.Errorf("%[1]s.points: %s of %s %s is set by %[1]s.set too, which comes last",
							section, c.key, name, p.Label)
					}
				}
			}
			out[i].Points[j].Set = merge(slices.Concat(base.under(p.Set), more))
		}
	}

	return out, nil
}

// merge merges changes into one section. A later change replaces earlier ones of the same key and of keys below it.
func merge(changes []change) map[string]any {
	out := map[string]any{}
	for _, c := range changes {
		maps.DeleteFunc(out, func(key string, _ any) bool { return below(key, c.key) })
		out[c.key] = c.value
	}
	return out
}

// kept are the labels of axes that one source keeps.
type kept struct {
	from   string
	labels map[string]some
}

func lists(m map[string][]string) map[string]some {
	out := map[string]some{}
	for axis, labels := range m {
		out[axis] = labels
	}
	return out
}

// keep removes points from the axes. The last source that names an axis decides.
func keep(axes []Axis, sources ...kept) ([]Axis, error) {
	out := slices.Clone(axes)
	for _, kept := range sources {
		for _, name := range slices.Sorted(maps.Keys(kept.labels)) {
			i, err := find(axes, name, kept.labels[name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kept.from, err)
			}
			if len(kept.labels[name]) == 0 {
				return nil, fmt.Errorf("%s: no label of axis %s is kept", kept.from, name)
			}
			out[i].Points = nil
			for _, p := range axes[i].Points {
				if slices.Contains(kept.labels[name], p.Label) {
					out[i].Points = append(out[i].Points, p)
				}
			}
		}
	}

	return out, nil
}

// find returns the index of an axis and checks some of its labels.
func find(axes []Axis, name string, labels []string) (int, error) {
	var names []string
	for i, a := range axes {
		names = append(names, a.Name)
		if a.Name != name {
			continue
		}
		for _, l := range labels {
			if !slices.Contains(a.Labels(), l) {
				return 0, fmt.Errorf("axis %s has no label %q; it has %s", name, l, strings.Join(a.Labels(), ", "))
			}
		}
		return i, nil
	}

	if len(names) == 0 {
		return 0, fmt.Errorf("unknown axis %q; the sweep has no axes", name)
	}

	return 0, fmt.Errorf("unknown axis %q: %s", name, configtags.Suggest(name, names, ""))
}

// combine returns the points of every combination of the kept axes that no entry of skip matches. An entry of skip that
// matches no combination of all axes is an error.
func combine(all, axes []Axis, skip []map[string]some, seeds, most int) ([][]PointSection, error) {
	for i, entry := range skip {
		if len(entry) == 0 {
			return nil, fmt.Errorf("sweep.skip[%d] names no axis, so it matches everything", i)
		}
		for _, name := range slices.Sorted(maps.Keys(entry)) {
			if _, err := find(all, name, entry[name]); err != nil {
				return nil, fmt.Errorf("sweep.skip[%d] matches nothing: %w", i, err)
			}
			if len(entry[name]) == 0 {
				return nil, fmt.Errorf("sweep.skip[%d] matches nothing: it lists no label of axis %s", i, name)
			}
		}
	}

	size := seeds
	for _, a := range axes {
		size = min(size, most+1) * len(a.Points)
	}

	if size > most {
		return nil, fmt.Errorf("the sweep has more than %d cells; split it into several files, or keep fewer points",
			most)
	}

	grid := [][]PointSection{nil}
	for _, a := range axes {
		var longer [][]PointSection
		for _, g := range grid {
			for _, p := range a.Points {
				longer = append(longer, append(slices.Clone(g), p))
			}
		}
		grid = longer
	}

	grid = slices.DeleteFunc(grid, func(points []PointSection) bool {
		return slices.ContainsFunc(skip, func(entry map[string]some) bool { return matches(entry, axes, points) })
	})
	if len(grid) == 0 {
		return nil, errors.New("sweep.skip leaves no cell")
	}

	return grid, nil
}

// matches reports whether every axis in the entry has one of its labels.
func matches(entry map[string]some, axes []Axis, points []PointSection) bool {
	for i, a := range axes {
		if labels, ok := entry[a.Name]; ok && !slices.Contains(labels, points[i].Label) {
			return false
		}
	}
	return true
}

// taken are the names in the folder of a sweep that are not cells.
var taken = []string{PlanFile, SweepYAML, "report.html", "report.json", "report.md", "tables.md", "tables.tex",
	"tables.csv", "plots"}

var noSlug = regexp.MustCompile(`[^\pL\p{Nd}._+=]+`)

// Slug converts a label to a part of a path: lower case, with a dash for every character that is not a letter, a digit
// or one of ._+=
func Slug(label string) string {
	return strings.Trim(noSlug.ReplaceAllString(strings.ToLower(label), "-"), ".-")
}
