package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/record"
)

// Load reads all runs in and below some folders. A folder is a run if it has a config.yaml and a rounds.jsonl; its
// labels are those of the nearest sweep.json at or above it, and its name where there is none. Runs of one experiment
// (experiment.Identity) are one group, wherever they lie, and no others are. Cells of a sweep that are missing or
// failed are groups too. What cannot be read becomes a note; that nothing is found is an error.
func Load(dirs ...string) (*Results, error) { return loadWith(readRun, dirs) }

func loadWith(read func(dir string) (*Run, []string), dirs []string) (*Results, error) {
	l := loader{read: read, seen: map[string]bool{}, plans: map[string]*planned{}}
	for _, dir := range dirs {
		if err := l.folder(dir); err != nil {
			return nil, err
		}
	}
	out := &Results{Notes: l.notes}
	var loose grouping
	type part struct {
		*planned
		groups []*Group
	}
	var parts []part
	for _, p := range l.order {
		groups, apart := p.groups(l.roots)
		l.loose = append(l.loose, apart...)
		out.Notes = append(out.Notes, p.notes...)
		if len(groups) > 0 {
			parts = append(parts, part{p, groups})
		}
	}
	for _, p := range parts {
		if !p.isGrid() && len(parts)+len(l.loose) > 1 {
			for _, g := range p.groups {
				loose.add(p.Name, g.Runs...)
			}
			continue
		}
		out.Plans = append(out.Plans, p.Plan)
		out.Groups = append(out.Groups, p.groups...)
	}
	distinctPlans(out.Plans)
	for _, r := range l.loose {
		loose.add(r.Name, r)
	}
	out.Groups = append(out.Groups, loose.finish()...)
	out.Notes = append(oncePerWarning(append(out.Notes, loose.notes...)), unidentified(out.Groups)...)
	if len(out.Groups) == 0 {
		return nil, fmt.Errorf("%w in %s: a run folder has %s and %s", ErrNoRuns, strings.Join(dirs, ", "), ConfigFile,
			record.RoundsFile)
	}
	return out, nil
}

// ErrNoRuns is the error of folders that hold no run.
var ErrNoRuns = errors.New("no runs")

// warned stands between a run's folder and what its summary warns of.
const warned = ": warning: "

// maxLimited is how many clients a note names each that a server refused or cut.
const maxLimited = 5

// oncePerWarning keeps the first of equal warnings of several runs, with the number of the others: a grid repeats the
// warnings of its data in every cell.
func oncePerWarning(notes []string) []string {
	runs := map[string]int{}
	for _, n := range notes {
		if _, what, ok := strings.Cut(n, warned); ok {
			runs[what]++
		}
	}
	var out []string
	for _, n := range notes {
		dir, what, ok := strings.Cut(n, warned)
		if k := runs[what]; ok && k == 0 {
			continue
		} else if ok && k > 1 {
			n = fmt.Sprintf("%s and %d more%s%s", dir, k-1, warned, what)
		}
		if ok {
			runs[what] = 0
		}
		out = append(out, n)
	}
	return out
}

type loader struct {
	read  func(dir string) (*Run, []string)
	seen  map[string]bool     // folders that were read
	plans map[string]*planned // by folder; nil for folders without one
	order []*planned
	loose []*Run
	roots []string // the folders given
	notes []string
}

// planned is a plan with the runs that were found for it.
type planned struct {
	*Plan
	at    map[string]int // index of the cell in a folder
	runs  []*Run         // of each cell; nil where there is no folder yet
	notes []string
}

func (p *planned) folder(c configs.PlanCell) string {
	return filepath.Join(p.Dir, filepath.FromSlash(c.Folder))
}

// folder reads what lies in and below a folder.
func (l *loader) folder(dir string) error {
	root, err := filepath.Abs(dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such folder", dir)
	}
	if err != nil {
		return err
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a folder; give a run folder, a sweep's folder, or one above them", dir)
	}
	l.roots = append(l.roots, root)
	for above := filepath.Dir(root); ; above = filepath.Dir(above) { // a cell of a sweep may be given alone
		l.plan(above)
		if above == filepath.Dir(above) {
			break
		}
	}
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			l.notes = append(l.notes, oneLine(err.Error()))
			return fs.SkipDir
		}
		if !e.IsDir() {
			return nil
		}
		if l.seen[path] {
			return fs.SkipDir
		}
		l.seen[path] = true
		l.plan(path)
		if l.run(path) {
			return fs.SkipDir
		}
		return nil
	})
}

// plan reads the plan of a folder, once.
func (l *loader) plan(dir string) *planned {
	p, known := l.plans[dir]
	if known {
		return p
	}
	plan, err := configs.ReadPlan(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.notes = append(l.notes, oneLine(err.Error()))
	}
	if err == nil {
		p = &planned{Plan: &Plan{*plan, dir}, at: map[string]int{}, runs: make([]*Run, len(plan.Cells))}
		for i, c := range plan.Cells {
			p.at[p.folder(c)] = i
		}
		l.order = append(l.order, p)
	}
	l.plans[dir] = p
	return p
}

// run reads a folder if it is a run, or a cell that failed before it was one.
func (l *loader) run(dir string) bool {
	var p *planned
	for above := dir; p == nil && above != filepath.Dir(above); above = filepath.Dir(above) {
		p = l.plan(above)
	}
	index, isCell := 0, false
	if p != nil {
		index, isCell = p.at[dir]
	}
	if !isRun(dir) && !(isCell && isFile(dir, ErrorFile)) {
		return false
	}
	run, notes := l.read(dir)
	switch {
	case p == nil:
		l.loose, l.notes = append(l.loose, run), append(l.notes, notes...)
	case !isCell:
		l.loose, l.notes = append(l.loose, run), append(l.notes, notes...)
		l.notes = append(l.notes, fmt.Sprintf("%s is not a cell of the sweep %s and is shown on its own", dir, p.Name))
	case run.Identity != nil && run.Identity.Seed != p.Cells[index].Seed:
		l.loose, l.notes = append(l.loose, run), append(l.notes, notes...)
		l.notes = append(l.notes, fmt.Sprintf("%s holds seed %d and is no run of its cell, whose seed is %d: it is "+
			"shown on its own", dir, run.Identity.Seed, p.Cells[index].Seed))
	default:
		run.Seed = p.Cells[index].Seed
		p.runs[index] = run
		p.notes = append(p.notes, notes...)
	}
	return true
}

// within reports whether a path is root or lies below it.
func within(path, root string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}
