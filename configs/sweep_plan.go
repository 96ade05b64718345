package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
)

const (
	PlanFile  = "sweep.json" // the Plan, which reports read
	SweepYAML = "sweep.yaml" // a sweep file that makes the same cells without options (Sweep.YAML)
)

// Plan is the content of sweep.json: the cells and their folders.
type Plan struct {
	Name  string      `json:"name"`
	Smoke bool        `json:"smoke"`
	Axes  []PlanAxis  `json:"axes"`
	Seeds []uint64    `json:"seeds"`
	Cells []PlanCell  `json:"cells"`
	Card  *PaperTable `json:"card,omitempty"`
}

// PlanAxis is one axis of a Plan: its name and the labels of its kept points, in the order of the grid.
type PlanAxis struct {
	Name   string   `json:"name"`
	Labels []string `json:"labels"`
}

// PlanCell is one run, in the folder Folder below that of the sweep.
type PlanCell struct {
	Folder string            `json:"folder"`
	Labels map[string]string `json:"labels"`
	Seed   uint64            `json:"seed"`
}

// Plan returns the content of PlanFile for the sweep. The cells have their labels, seeds and folders, not their
// configurations.
func (s *Sweep) Plan() Plan {
	axis := func(a Axis) PlanAxis { return PlanAxis{a.Name, a.Labels()} }
	cell := func(c Cell) PlanCell { return PlanCell{c.Folder, c.Labels, c.Seed} }
	return Plan{Name: s.Name, Smoke: s.Smoke, Axes: convert.Slice(s.Axes, axis), Seeds: s.Seeds, Card: s.Card,
		Cells: convert.Slice(s.Cells, cell)}
}

// JSON returns the text of PlanFile, indented and with a line break at its end.
func (p Plan) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(p, "", "  ")
	return append(b, '\n'), err
}

const maxPlan = 64 << 20 // bytes; a cell has some 300

// ReadPlan reads sweep.json in the folder of a sweep. The folder of a cell outside the folder of the sweep is an error.
func ReadPlan(dir string) (*Plan, error) {
	path := filepath.Join(dir, PlanFile)
	text, err := atomicfile.ReadAtMost(path, maxPlan)
	if err != nil {
		return nil, err
	}
	return parsePlan(path, text)
}

func parsePlan(path string, text []byte) (*Plan, error) {
	var plan Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return nil, fmt.Errorf("%s: %s; expected a file written by promptfed sweep", path, oneline.Error(err))
	}

	for _, c := range plan.Cells {
		if !filepath.IsLocal(filepath.FromSlash(c.Folder)) {
			return nil, fmt.Errorf("%s: cell folder %q is not below that of the sweep", path, c.Folder)
		}
		for _, a := range plan.Axes {
			if !slices.Contains(a.Labels, c.Labels[a.Name]) {
				return nil, fmt.Errorf("%s: cell %s has the label %q on axis %s, which lacks it", path, c.Folder,
					c.Labels[a.Name], a.Name)
			}
		}
	}

	return &plan, nil
}

// resolve returns sections of a sweep file that, with the base, make the same cells without --smoke, --set, --keep,
// --seeds and the environment.
func (s *Sweep) resolve(axes []Axis, skip []map[string]some, last []change) SweepSection {
	r := SweepSection{Seeds: s.Seeds, Skip: skip, Smoked: s.Smoke, Keep: map[string]some{}, Set: merge(last)}
	for i, a := range axes {
		r.Axes = append(r.Axes, AxisSection{Name: a.Name, Points: a.Points})
		if len(s.Axes[i].Points) < len(a.Points) {
			r.Keep[a.Name] = s.Axes[i].Labels()
		}
	}

	return r
}

// YAML returns a sweep file that makes the same cells without options.
func (s *Sweep) YAML() ([]byte, error) {
	base, err := YAML(s.base)
	if err != nil {
		return nil, err
	}

	sections := map[string]any{"sweep": s.resolved}
	if s.Card != nil {
		sections["card"] = s.Card
	}

	text, err := yaml.Marshal(sections)
	return append(base, text...), err
}

// CheckSame compares the sweep with the sweep in a folder. Another name or other axes are an error, and so is a cell
// with results that the sweep lacks or configures otherwise, except for how or where it runs. kept tells whether the
// cell in a folder below dir has results. It returns the folders of other cells that are new or changed.
func (s *Sweep) CheckSame(dir string, kept func(folder string) bool) (changed []string, err error) {
	there, err := LoadSweep(filepath.Join(dir, SweepYAML), SweepOptions{Still: true})
	if err != nil {
		return nil, fmt.Errorf("cannot resume: %w; use another --out", err)
	}

	differs := func(format string, a ...any) error {
		return fmt.Errorf("cannot resume: %s holds another sweep: %s; use another --out", dir, fmt.Sprintf(format,
			a...))
	}

	if s.Name != there.Name || s.Smoke != there.Smoke {
		return nil, differs("name %s and smoke %v there, %s and %v now", there.Name, there.Smoke, s.Name, s.Smoke)
	}

	axes, axesThere := s.Plan().Axes, there.Plan().Axes
	if !slices.EqualFunc(axes, axesThere, func(a, b PlanAxis) bool { return a.Name == b.Name }) {
		return nil, differs("axes %s there, %s now", show(axesThere), show(axes))
	}

	earlier := map[string]experiment.Config{}
	for _, c := range there.Cells {
		earlier[c.Folder] = c.Config
	}

	for _, cell := range s.Cells {
		old, planned := earlier[cell.Folder]
		delete(earlier, cell.Folder)
		switch {
		case !planned:
			changed = append(changed, cell.Folder)
		case kept(cell.Folder):
			if key, was, is := firstDifference(old, cell.Config, isOfCell); key != "" {
				return nil, differs("cell %s has results, and its %s is %s there, %s now", cell.Folder, key, was, is)
			}
		default: // a cell that failed goes on if it is the same experiment
			if key, _, _ := firstDifference(old, cell.Config, experiment.IsIdentityKey); key != "" {
				changed = append(changed, cell.Folder)
			}
		}
	}

	for _, folder := range slices.Sorted(maps.Keys(earlier)) {
		if kept(folder) {
			return nil, differs("cell %s has results there and is not planned now", folder)
		}
	}

	return changed, nil
}

// isOfCell reports whether a key says what runs in a cell, and not only how or where.
func isOfCell(key string) bool {
	return !strings.HasPrefix(key, "runtime.") || experiment.IsIdentityKey(key)
}

// firstDifference returns the first key of some in which two configurations differ, and both values; an empty key for
// none.
func firstDifference(before, now experiment.Config, counts func(key string) bool) (key, was, is string) {
	oldValues, newValues := before.Values(), now.Values()
	all := maps.Clone(oldValues)
	maps.Copy(all, newValues)
	text := func(m map[string]any, key string) string {
		if v, ok := m[key]; ok {
			return fmt.Sprint(v)
		}
		return "none"
	}

	for _, key := range slices.Sorted(maps.Keys(all)) {
		if was, is := text(oldValues, key), text(newValues, key); counts(key) && was != is {
			return key, was, is
		}
	}

	return "", "", ""
}

func show(axes []PlanAxis) string {
	parts := convert.Slice(axes, func(a PlanAxis) string { return a.Name + " (" + strings.Join(a.Labels, ", ") + ")" })
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, " x ")
}
