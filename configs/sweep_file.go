package configs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"promptfed/runtime/oneline"
)

// SweepFile holds the sections of a sweep file. The ordinary keys beside them are the base of every cell. The tags
// "config" are the keys; except for no_numbers they equal the default names of the YAML package.
type SweepFile struct {
	Sweep SweepSection `config:"sweep" help:"the grid of runs"`
	Card  PaperTable   `config:"card" help:"what the sweep reproduces"`
	Smoke SmokeSection `config:"smoke" help:"what --smoke changes, so that the file runs anywhere in a minute"`
}

// SweepSection is the section sweep. The grid is the product of the axes; the first axis varies slowest.
type SweepSection struct {
	Seeds  []uint64          `config:"seeds" yaml:",flow" help:"seeds of each point of the grid; empty: the seed above"`
	Axes   []AxisSection     `config:"axes" yaml:",omitempty" help:"dimensions of the grid, slowest first"`
	Skip   []map[string]some `config:"skip" yaml:",omitempty"`
	Keep   map[string]some   `config:"keep" yaml:",omitempty"`
	Points pointKeys         `config:"points" yaml:",omitempty"`
	Set    map[string]any    `config:"set" yaml:",omitempty" help:"keys of every cell, after those of its points"`
	Smoked bool              `config:"smoked" yaml:",omitempty" help:"written by the program for a --smoke run"`
}

func (SweepSection) LongHelp() map[string]string {
	return map[string]string{
		"skip":   "combinations left out, each as axis: label or axis: [labels]; all named axes must match",
		"keep":   "axis: [labels] to run; other axes run all labels",
		"points": "axis: {label: {keys}}, keys of single points, also from a file",
	}
}

// AxisSection is one axis with points, with key and values as a short form, or with the points of another file.
type AxisSection struct {
	Name   string         `config:"name" help:"name of the axis"`
	Points []PointSection `config:"points" help:"points of the axis"`
	Key    string         `config:"key" yaml:",omitempty" help:"short form: the one key that varies"`
	Values []word         `config:"values" yaml:",omitempty" help:"short form: its values, which are also the labels"`
	File   string         `config:"file" yaml:",omitempty" help:"file with the points, which sweeps can share"`
}

// PointSection is one point of an axis: its label, and the keys of the configuration that it sets in the cells with
// that label.
type PointSection struct {
	Label string         `config:"label" help:"name of the point in tables, figures and folder names"`
	Set   map[string]any `config:"set"`
}

func (PointSection) LongHelp() map[string]string {
	return map[string]string{
		"set": "the keys it sets, nested or dotted; a whole map such as options replaces the base's, and " +
			"options.KEY[0,2] sets elements of a list",
	}
}

// SmokeSection is the section smoke: the keys, the points and the seeds with which --smoke makes the sweep small.
// Without --smoke it has no effect.
type SmokeSection struct {
	Set    map[string]any  `config:"set" help:"keys of every cell, after those of its points"`
	Points pointKeys       `config:"points" help:"axis: {label: {keys}}, keys of single points"`
	Keep   map[string]some `config:"keep" help:"axis: [labels] to run; other axes run all labels"`
	Seeds  []uint64        `config:"seeds" help:"instead of those of the sweep"`
}

// read reads the points of the axis from its file, if it names one.
func (a *AxisSection) read(dir string) error {
	if a.File == "" {
		return nil
	}

	if len(a.Points) > 0 || a.Key != "" || len(a.Values) > 0 {
		return errors.New("it has a file, and points or values too; use only one of these forms")
	}

	path := filepath.Join(dir, filepath.FromSlash(a.File))
	text, err := readText(path)
	if err != nil {
		return err
	}

	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := cmp.Or(scan(text, new(any)), d.Decode(&a.Points)); err != nil {
		return fmt.Errorf("%s: %s; it is a list of {label, set}", path, oneline.Error(err))
	}

	a.File = ""
	return nil
}

// word is a single YAML value with its text in the file.
type word struct {
	text  string
	value any
}

// UnmarshalYAML refuses lists and maps, which cannot be labels.
func (w *word) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: values of the short form are single values; give lists and maps as points with "+
			"labels", n.Line)
	}
	w.text = n.Value
	return n.Decode(&w.value)
}

func (w word) MarshalYAML() (any, error) {
	n := &yaml.Node{}
	if err := n.Encode(w.value); err != nil {
		return nil, err
	}
	n.Value = w.text
	return n, nil
}

// some is a list of labels. A single label may stand for a list.
type some []string

func (s *some) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		var one string
		err := n.Decode(&one)
		*s = some{one}
		return err
	}
	return n.Decode((*[]string)(s))
}

func sectionNames() []string {
	return slices.Sorted(maps.Keys(fieldsOf(reflect.TypeFor[SweepFile]())))
}

// sections moves the sections of a parsed file that the struct out points to has into the struct. It returns those that
// the file has, as they are in the file.
func (f parsed) sections(text []byte, out any) (there map[string]any, err error) {
	there = map[string]any{}
	for name := range fieldsOf(reflect.TypeOf(out).Elem()) {
		if section, ok := f.keys[name]; ok {
			there[name] = plain(section)
			delete(f.keys, name)
		}
	}

	if err := unknown(there, reflect.TypeOf(out).Elem()); err != nil {
		return nil, settings{file: f, from: f.origins(nil)}.blame(err)
	}

	if err := yaml.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("%s: %s", f.path, oneline.Error(err))
	}

	return there, nil
}

// sweepSections moves the sections of a parsed sweep file into sweepFile, and returns those that the file has.
func (f parsed) sweepSections(text []byte, sweepFile *SweepFile) (there map[string]any, err error) {
	if there, err = f.sections(text, sweepFile); err != nil {
		return nil, err
	}

	for i := range sweepFile.Sweep.Axes {
		axis := &sweepFile.Sweep.Axes[i]
		if err := axis.read(filepath.Dir(f.path)); err != nil {
			return nil, fmt.Errorf("%s: axis %s: %w", f.path, axis.Name, err)
		}
	}

	for _, name := range []string{"sweep", "smoke"} {
		section, _ := there[name].(map[string]any)
		seeds, given := section["seeds"]
		if list, _ := seeds.([]any); given && len(list) == 0 {
			return nil, fmt.Errorf("%s: %s.seeds is empty; list at least one seed, or leave the key out", f.path, name)
		}
	}

	return there, nil
}

// HasSection reports whether a configuration file has a section, such as sweep or counts.
func HasSection(path, name string) (bool, error) {
	f, err := read(path)
	_, ok := f.keys[name]
	return ok, err
}
