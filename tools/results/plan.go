package results

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"promptfed/configs"
)

// PlanFile lists the cells of a sweep.
const PlanFile = "sweep.json"

const maxPlan = 256 << 20

// planFile is a sweep.json. A cell is one run folder.
type planFile struct {
	Name  string        `json:"name"`
	Smoke bool          `json:"smoke"`
	Axes  []Axis        `json:"axes"`
	Seeds []uint64      `json:"seeds"`
	Cells []cell        `json:"cells"`
	Card  *configs.Card `json:"card"`
}

type cell struct {
	Folder string            `json:"folder"`
	Labels map[string]string `json:"labels"`
	Seed   uint64            `json:"seed"`
}

// readPlan reads the plan of a sweep's folder; nil without an error where there is none.
func readPlan(dir string) (*Plan, []cell, error) {
	path := filepath.Join(dir, PlanFile)
	text, err := readSmall(path, maxPlan)
	if text == nil || err != nil {
		return nil, nil, err
	}
	p, cells, err := parsePlan(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	p.Dir = dir
	return p, cells, nil
}

func parsePlan(text []byte) (*Plan, []cell, error) {
	var f planFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, nil, fmt.Errorf("no plan of a sweep: %w", err)
	}
	axes := map[string]map[string]bool{}
	for _, a := range f.Axes {
		if a.Name == "" || axes[a.Name] != nil {
			return nil, nil, fmt.Errorf("two axes, or none, are called %q", a.Name)
		}
		axes[a.Name] = map[string]bool{}
		for _, l := range a.Labels {
			axes[a.Name][l] = true
		}
	}
	folders := map[string]bool{}
	for i, c := range f.Cells {
		if !filepath.IsLocal(c.Folder) || folders[filepath.Clean(c.Folder)] {
			return nil, nil, fmt.Errorf("cell %d has the folder %q, which lies outside the sweep or has another cell too", i, c.Folder)
		}
		folders[filepath.Clean(c.Folder)] = true
		for axis, label := range c.Labels {
			if !axes[axis][label] {
				return nil, nil, fmt.Errorf("cell %d: the axis %q has no label %q", i, axis, label)
			}
		}
		if len(c.Labels) != len(f.Axes) {
			return nil, nil, fmt.Errorf("cell %d has %d labels for %d axes", i, len(c.Labels), len(f.Axes))
		}
	}
	p := &Plan{Name: f.Name, Smoke: f.Smoke, Axes: f.Axes, Seeds: f.Seeds, Card: f.Card}
	if c := p.Card; c != nil && c.Paper == "" && c.Title == "" && len(c.Rows)+len(c.Columns)+len(c.Figures) == 0 {
		p.Card = nil // written of a file without one
	}
	return p, f.Cells, nil
}
