package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment/identity"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/runfolder"
)

// Load reads all runs in and below some folders. A folder with a config.yaml, and an experiment.json, a rounds.jsonl or
// a client.json, is a run. Its labels come from the nearest sweep.json at or above it, or from its name if there is
// none. Exactly the runs of one experiment (identity.Identity) form a group, in any folders. Missing or failed cells of
// a sweep are groups too. Unreadable content becomes a note. Finding no run is an error.
func Load(dirs ...string) (*Results, error) { return loadWith(readRun, dirs, false) }

// LoadMerged is Load with all sweeps as one, whose axes must be the same. Points of equal labels must be one
// experiment, unless only one of them has results.
func LoadMerged(dirs ...string) (*Results, error) { return loadWith(readRun, dirs, true) }

func loadWith(read func(dir string) (*Run, []string), dirs []string, merge bool) (*Results, error) {
	loader := loader{read: read, seen: map[string]bool{}, plans: map[string]*planned{}}
	for _, dir := range dirs {
		if err := loader.folder(dir); err != nil {
			return nil, err
		}
	}

	out := &Results{Notes: loader.notes}
	loose := grouping{at: map[string]*Group{}}
	for _, p := range loader.order {
		loader.loose = append(loader.loose, p.group(loader.roots)...)
		out.Notes = append(out.Notes, p.notes...)
	}

	parts := slices.DeleteFunc(loader.order, func(p *planned) bool { return len(p.groups) == 0 })
	if merge && len(parts) > 1 {
		for _, p := range parts[1:] {
			if err := parts[0].merge(p); err != nil {
				return nil, err
			}
		}
		parts = parts[:1]
	}

	for _, p := range parts {
		if !p.isGrid() && len(parts)+len(loader.loose) > 1 {
			for _, g := range p.groups {
				loose.add(p.Name, g.Runs...)
			}
			continue
		}
		out.Plans = append(out.Plans, p.Plan)
		out.Groups = append(out.Groups, p.groups...)
	}

	distinctPlans(out.Plans)
	for _, r := range loader.loose {
		loose.add(r.Name, r)
	}

	out.Groups = append(out.Groups, loose.finish()...)
	out.Notes = append(oncePerWarning(append(out.Notes, loose.notes...)), unidentified(out.Groups)...)
	if len(out.Groups) == 0 {
		return nil, fmt.Errorf("%w in %s: a run folder has %s, and %s or %s", ErrNoRuns, strings.Join(dirs, ", "),
			runfolder.ConfigFile, identity.File, record.RoundsFile)
	}

	return out, nil
}

// ErrNoRuns is the error for folders without a run.
var ErrNoRuns = errors.New("no runs")

// warned separates a run's folder from its summary's warning.
const warned = ": warning: "

// maxLimited is the largest number of refused or cut clients with a note each.
const maxLimited = 5

// oncePerWarning keeps the first of equal warnings of several runs, with the number of the others, because a grid
// repeats the warnings about its data in every cell.
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
	seen  map[string]bool     // folders already read
	plans map[string]*planned // by folder; nil for folders without a plan
	order []*planned
	loose []*Run
	roots []string // the given folders
	notes []string
}

// planned is a plan with the runs found for it.
type planned struct {
	*Plan
	at     map[string]int // index of the cell in a folder
	runs   []*Run         // of each cell; nil if its folder does not exist yet
	groups []*Group
	notes  []string
}

func (p *planned) folder(c configs.PlanCell) string {
	return filepath.Join(p.Dir, filepath.FromSlash(c.Folder))
}

// folder reads the content of a folder and everything below it.
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
	for above := filepath.Dir(root); ; above = filepath.Dir(above) { // the given folder may be a single cell of a sweep
		l.plan(above)
		if above == filepath.Dir(above) {
			break
		}
	}

	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			l.notes = append(l.notes, oneline.Text(err.Error()))
			return fs.SkipDir
		}

		if !e.IsDir() {
			return nil
		}

		if l.seen[path] || ofRun(path) {
			return fs.SkipDir
		}

		l.seen[path] = true
		l.plan(path)
		l.run(path)
		return nil
	})
}

// plan reads the plan of a folder once.
func (l *loader) plan(dir string) *planned {
	found, known := l.plans[dir]
	if known {
		return found
	}

	plan, err := configs.ReadPlan(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.notes = append(l.notes, oneline.Text(err.Error()))
	}

	if err == nil {
		found = &planned{Plan: &Plan{Plan: *plan, Dir: dir}, at: map[string]int{}, runs: make([]*Run, len(plan.Cells))}
		for i, c := range plan.Cells {
			found.at[found.folder(c)] = i
		}
		l.order = append(l.order, found)
	}

	l.plans[dir] = found
	return found
}

// run reads a folder if it is a run, or a cell that failed before it became a run.
func (l *loader) run(dir string) {
	var found *planned
	for above := dir; found == nil && above != filepath.Dir(above); above = filepath.Dir(above) {
		found = l.plan(above)
	}

	index, isCell := 0, false
	if found != nil {
		index, isCell = found.at[dir]
	}

	if !isRun(dir) && !(isCell && isFile(dir, runfolder.ErrorFile)) {
		return
	}

	run, notes := l.read(dir)
	switch {
	case found == nil:
	case !isCell:
		notes = append(notes, fmt.Sprintf("%s is not a cell of the sweep %s and is shown on its own", dir, found.Name))
	case run.Identity != nil && run.Identity.Seed != found.Cells[index].Seed:
		notes = append(notes, fmt.Sprintf("%s holds seed %d and is no run of its cell, whose seed is %d: it is shown "+
			"on its own", dir, run.Identity.Seed, found.Cells[index].Seed))
	default:
		run.Seed = found.Cells[index].Seed
		found.runs[index], found.notes = run, append(found.notes, notes...)
		return
	}

	l.loose, l.notes = append(l.loose, run), append(l.notes, notes...)
}

// within reports whether a path equals root or lies below it.
func within(path, root string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}
