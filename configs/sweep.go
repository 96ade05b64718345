package configs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
)

// Sweep is a grid of runs with checked configurations.
type Sweep struct {
	Name  string
	Axes  []Axis // with the kept points
	Seeds []uint64
	Cells []Cell      // the first axis varies slowest, the seed fastest
	Card  *PaperTable // nil for none
	Smoke bool
	// Hidden lists the keys of points that the command line overrides, so that labels do not describe the runs.
	Hidden []string
	Notes  []string // options of the file that do not apply, with the reason

	base     experiment.Config // of all cells
	resolved SweepSection
}

// Axis is one dimension of a sweep's grid: a name, and the points among which it varies, each with its label and keys.
type Axis struct {
	Name   string
	Points []PointSection
}

// Labels returns the labels of the points, in their order.
func (a Axis) Labels() []string {
	return convert.Slice(a.Points, func(p PointSection) string { return p.Label })
}

// Cell is one run of a sweep.
type Cell struct {
	Folder string // below the folder of the sweep, with slashes
	Labels map[string]string
	Seed   uint64
	Config experiment.Config
}

// SweepOptions are changes of a sweep from the command line.
type SweepOptions struct {
	Smoke bool
	Sets  []string            // "key=value", applied last
	Keep  map[string][]string // labels of an axis; the file decides about other axes
	Seeds []uint64            // instead of those of the file
	Grid  []string            // "key=value,value": an axis each, behind those of the file

	most  int  // largest number of cells; 0 for maxCells
	Still bool // without the environment
}

const maxCells = 20000

// LoadSweep reads a sweep file: an ordinary configuration, which is the base of every cell, with optional sections
// sweep, card and smoke. Without axes there is one run for each seed. The configuration of a cell is the base, changed
// by the environment; then the points of its labels in the order of the axes (each with sweep.points and smoke.points),
// sweep.set, smoke.set, Sets and the seed. The smoke keys apply only with Smoke. An error names its place in the file.
func LoadSweep(path string, o SweepOptions) (*Sweep, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	return ParseSweep(path, text, o)
}

// ParseSweep is LoadSweep for a text; name stands for the file in errors. Errors about its keys are one line.
func ParseSweep(name string, text []byte, o SweepOptions) (*Sweep, error) {
	s, err := loadSweep(name, text, o)
	if err != nil {
		return nil, oneline.Error(err)
	}
	return s, nil
}

func loadSweep(path string, text []byte, options SweepOptions) (*Sweep, error) {
	parsed, err := parse(path, text)
	if err != nil {
		return nil, err
	}

	var sections SweepFile
	there, err := parsed.sweepSections(text, &sections)
	if err != nil {
		return nil, err
	}

	if _, ok := there["smoke"]; options.Smoke && !ok {
		return nil, fmt.Errorf("%s has no section smoke, which --smoke needs", path)
	}

	for _, text := range options.Grid {
		axis, err := gridAxis(text, sections.Sweep.Axes)
		if err != nil {
			return nil, err
		}
		sections.Sweep.Axes = append(sections.Sweep.Axes, axis)
	}

	start := experiment.Defaults()
	parsed.still = options.Still
	base, err := layered(&start, parsed)
	if err != nil {
		return nil, err
	}

	base, notes, err := base.forMethod(options.Sets)
	if err != nil {
		return nil, err
	}

	sweep, err := expand(base, sections, options)
	if err != nil && !inFile(err) {
		err = fmt.Errorf("%s: %w", path, err)
	}

	if err != nil {
		return nil, err
	}

	sweep.Notes = notes
	if _, ok := there["card"]; ok {
		sweep.Card = &sections.Card
	}

	return sweep, nil
}

// expand makes the cells from the base and the sections.
func expand(base settings, file SweepFile, options SweepOptions) (*Sweep, error) {
	base.file.path = "" // the caller adds the file
	axes, err := file.Sweep.axes()
	if err != nil {
		return nil, err
	}

	if axes, err = added("sweep", file.Sweep.Points, file.Sweep.Set, base, axes); err != nil {
		return nil, err
	}

	if err := file.Card.check(axes); err != nil {
		return nil, err
	}

	smoke := file.Smoke
	if _, err := keep(axes, kept{"smoke.keep", smoke.Keep}); err != nil {
		return nil, err
	}

	smoked, err := added("smoke", smoke.Points, smoke.Set, base, axes)
	if err != nil {
		return nil, err
	}

	if options.Smoke {
		axes = smoked
	} else {
		smoke = SmokeSection{}
	}

	left, err := keep(axes, kept{"sweep.keep", file.Sweep.Keep}, kept{"smoke.keep", smoke.Keep}, kept{"--keep",
		lists(options.Keep)})
	if err != nil {
		return nil, err
	}

	sets, err := base.parse(options.Sets)
	if err != nil {
		return nil, err
	}

	last := slices.Concat(base.under(file.Sweep.Set), base.under(smoke.Set), sets)
	sweep := &Sweep{Axes: left, Smoke: options.Smoke || file.Sweep.Smoked}
	if sweep.Hidden, err = hidden(base, left, sets); err != nil {
		return nil, err
	}

	common, err := base.common(last)
	if err != nil {
		return nil, err
	}

	sweep.Name = common.Name
	sweep.Seeds = []uint64{common.Seed}
	for _, seeds := range [][]uint64{file.Sweep.Seeds, smoke.Seeds, options.Seeds} {
		if len(seeds) > 0 {
			sweep.Seeds = seeds
		}
	}

	most := cmp.Or(options.most, maxCells)
	for i, seed := range sweep.Seeds[:min(len(sweep.Seeds), most)] { // combine refuses more
		if slices.Contains(sweep.Seeds[:i], seed) {
			return nil, fmt.Errorf("seed %d is listed twice", seed)
		}
	}

	grid, err := combine(axes, left, file.Sweep.Skip, len(sweep.Seeds), most)
	if err != nil {
		return nil, err
	}

	if err := sweep.fill(base, grid, last); err != nil {
		return nil, err
	}

	sweep.base, sweep.resolved = experiment.Defaults(), sweep.resolve(axes, file.Sweep.Skip, last)
	return sweep, base.decode(&sweep.base)
}

// common returns the settings that cells share: the base and the later changes that do not depend on points.
func (s settings) common(last []change) (experiment.Config, error) {
	out := experiment.Defaults()
	for _, c := range last {
		if next, err := s.with([]change{c}); err == nil {
			s = next
		}
	}
	return out, s.decode(&out)
}

func (s *Sweep) fill(base settings, grid [][]PointSection, last []change) error {
	folders := map[string]bool{}
	for _, points := range grid {
		var changes []change
		labels := map[string]string{}
		for i, p := range points {
			changes = append(changes, base.under(p.Set)...)
			labels[s.Axes[i].Name] = p.Label
		}

		conf := experiment.Defaults()
		at, wrong := base.with(append(changes, last...))
		if wrong == nil {
			wrong = at.decode(&conf)
		}

		if wrong == nil {
			wrong = at.blame(check(conf))
		}

		for _, seed := range s.Seeds {
			folder, err := folderOf(points, seed)
			if err != nil {
				return err
			}

			if folders[folder] {
				return fmt.Errorf("two cells would use the folder %s; choose labels that differ in letters or "+
					"digits", folder)
			}

			folders[folder] = true
			if wrong != nil {
				return fmt.Errorf("cell %s: %w", folder, wrong)
			}

			conf.Seed = seed
			s.Cells = append(s.Cells, Cell{Folder: folder, Labels: labels, Seed: seed, Config: conf})
		}
	}

	return nil
}

// check checks a configuration without opening any data.
func check(c experiment.Config) error { return withMethod(c, c.Check()) }

// withMethod joins an error about the method with errors about other keys.
func withMethod(c experiment.Config, wrong error) error {
	_, err := methods.Build(c.Method, c.With, c.Options)
	return errors.Join(wrong, err)
}

// hidden lists the axes some of whose points set a key that the command line sets too. If all points set it, to
// values that differ, the labels of the axis would not describe the cells, which is an error.
func hidden(base settings, axes []Axis, sets []change) ([]string, error) {
	var out []string
	for _, axis := range axes {
		for _, set := range sets {
			n, values := 0, map[string]bool{}
			for _, p := range axis.Points {
				sets := false
				for _, own := range base.under(p.Set) {
					if value, ok := own.sets(set.key); ok {
						sets, values[fmt.Sprint(own.key, value)] = true, true
					}
				}
				if sets {
					n++
				}
			}

			switch {
			case len(values) > 1 && n == len(axis.Points):
				return nil, fmt.Errorf("--set %s: axis %s sets this key; choose among its labels with --keep %s="+
					"LABEL, or remove the axis from the file", set.key, axis.Name, axis.Name)
			case n > 0:
				out = append(out, fmt.Sprintf("--set %s overrides what axis %s sets", set.key, axis.Name))
			}
		}
	}

	return out, nil
}

// sets returns the value that a change gives to a key, to a part of it, or to an entry of a map.
func (c change) sets(key string) (value any, ok bool) {
	if c.key == key || below(c.key, key) {
		return c.value, true
	}

	rest, ok := strings.CutPrefix(key, c.key+".")
	value = c.value
	for inside := ok; inside; {
		var part string
		entries, _ := value.(map[string]any)
		part, rest, inside = strings.Cut(rest, ".")
		if value, ok = entries[part]; !ok {
			return nil, false
		}
	}
	return value, ok
}

// below reports whether a key is below another key.
func below(key, whole string) bool {
	return strings.HasPrefix(key, whole+".") || strings.HasPrefix(key, whole+"[")
}

// folderOf returns the folder of a cell: its labels in the order of the axes, as parts of a path, and its seed.
func folderOf(points []PointSection, seed uint64) (string, error) {
	var parts []string
	for i, p := range points {
		s := Slug(p.Label)
		if s == "" || len(s) > 100 {
			return "", fmt.Errorf("label %q cannot become a folder name; use letters or digits, at most 100", p.Label)
		}
		if i == 0 && slices.Contains(taken, s) {
			return "", fmt.Errorf("label %q would use the folder %s, which the report of the sweep uses; choose "+
				"another", p.Label, s)
		}
		parts = append(parts, s)
	}

	return strings.Join(append(parts, "seed-"+strconv.FormatUint(seed, 10)), "/"), nil
}

// Part is the part of the cells of a sweep that one of several processes runs: every Of-th cell from a first one. The
// zero value stands for all cells.
type Part struct{ part, Of int }

func (p *Part) String() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.part, p.Of)
}

// Type returns the form of a part, which the help of a flag shows in place of a type.
func (*Part) Type() string { return "I/N" }

// Set reads a part such as 0/8. Parts are numbered from 0. It returns an error, and keeps the value, for any other
// text.
func (p *Part) Set(text string) error {
	var q Part
	if _, err := fmt.Sscanf(text, "%d/%d", &q.part, &q.Of); err != nil || q.Of < 1 || q.String() != text {
		return fmt.Errorf("%q: expected I/N, as in 0/8", text)
	}

	if q.part < 0 || q.part >= q.Of {
		return fmt.Errorf("%q: parts of %d are numbered from 0 to %d", text, q.Of, q.Of-1)
	}

	*p = q
	return nil
}

// Name returns the name of the lock of the part.
func (p Part) Name() string {
	if p.Of == 0 {
		return ""
	}
	return fmt.Sprintf("%d-of-%d", p.part, p.Of)
}

// Cells returns the cells of the part, in the order of the sweep. Neighbours, which mostly have the same method, are in
// different parts.
func (p Part) Cells(all []Cell) (out []Cell) {
	for i, c := range all {
		if p.Of == 0 || i%p.Of == p.part {
			out = append(out, c)
		}
	}
	return out
}
