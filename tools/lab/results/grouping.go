package results

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/tools/promptfed/runfolder"
)

// experimentOf is equal for runs of one experiment, which differ in nothing but the seed. A run whose experiment is not
// known completely is one of its own.
func experimentOf(r *Run) string {
	if r.Identity == nil || len(r.Identity.Unknown) > 0 {
		return "run " + r.Dir
	}
	return r.Identity.Fingerprint
}

// grouping puts runs together by experiment. A second run of one experiment and seed is no further seed: it is a group
// of its own.
type grouping struct {
	groups []*Group
	at     map[string]*Group
	notes  []string
}

// add adds runs that belong to no grid, with a name for their groups. Runs that did not start belong to the experiment
// of the others beside them.
func (l *grouping) add(name string, runs ...*Run) {
	if l.at == nil {
		l.at = map[string]*Group{}
	}
	key := ""
	for _, r := range runs {
		if r.State != Missing {
			key = experimentOf(r)
			break
		}
	}
	for _, r := range runs {
		if r.State != Missing || key == "" {
			key = experimentOf(r)
		}
		at := key
		if g := l.at[key]; g != nil {
			if i := slices.IndexFunc(g.Runs, func(o *Run) bool { return o.Seed == r.Seed }); i >= 0 {
				at = "run " + r.Dir
				l.notes = append(l.notes, fmt.Sprintf("%s is the experiment and the seed of %s: it is shown on its "+
					"own and is no further seed", r.Dir, g.Runs[i].Dir))
			}
		}
		g := l.at[at]
		if g == nil {
			g = &Group{Name: name, Experiment: at}
			l.at[at] = g
			l.groups = append(l.groups, g)
		}
		g.Runs = append(g.Runs, r)
	}
}

// finish names the groups and gives them their labels.
func (l *grouping) finish() []*Group {
	for _, g := range l.groups {
		sortRuns(g.Runs)
	}
	nameByDifference(l.groups)
	for _, g := range l.groups {
		g.Labels = map[string]string{RunAxis: g.Name}
	}
	return l.groups
}

// mostNamedKeys is how many differing keys a name has; groups that differ in others only are named by their folders.
const mostNamedKeys = 4

// nameByDifference gives groups of one name different names: the keys in which their experiments differ, else their
// folders.
func nameByDifference(groups []*Group) {
	byName := map[string][]*Group{}
	for _, g := range groups {
		byName[g.Name] = append(byName[g.Name], g)
	}
	for _, name := range sortedKeys(byName) {
		same := byName[name]
		if len(same) < 2 {
			continue
		}
		folders := map[*Group]string{}
		for _, g := range same {
			folders[g] = folderOf(g)
		}
		names := differing(same)
		times := map[string]int{}
		for _, n := range names {
			times[n]++
		}
		for i, g := range same {
			switch n := names[i]; {
			case n == "":
				g.Name = distinct(folders[g], folders)
			case times[n] > 1:
				g.Name = name + ", " + n + ", " + distinct(folders[g], folders)
			default:
				g.Name = name + ", " + n
			}
		}
	}
}

// folderOf is the folder of a group: that of its run, or the one above its seeds.
func folderOf(g *Group) string {
	dir := g.Runs[0].Dir
	if runfolder.SeedFolder.MatchString(filepath.Base(dir)) && len(g.Runs) > 1 {
		return filepath.Dir(dir)
	}
	return dir
}

// differing describes each group by its values of the keys that differ among the groups, such as "method=fedpgp,
// train.lr=0.1"; empty where they are unknown.
func differing(groups []*Group) []string {
	out := make([]string, len(groups))
	var known []*experiment.Identity
	for _, g := range groups {
		if id := g.identity(); id != nil {
			known = append(known, id)
		}
	}
	keys := experiment.CommonKeys(experiment.DifferingKeys(known), known)
	if slices.Contains(keys, "method") || slices.Contains(keys, "with") { // which have options of their own
		keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "options.") })
	}
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(rankOfKey(a), rankOfKey(b)) })
	keys = keys[:min(len(keys), mostNamedKeys)]
	for i, g := range groups {
		id := g.identity()
		if id == nil {
			continue
		}
		var parts []string
		for _, k := range keys {
			if _, has := id.Values[k]; has {
				parts = append(parts, k+"="+id.Among(k, known))
			}
		}
		out[i] = strings.Join(parts, ", ")
	}
	return out
}

// rankOfKey puts the method before its options, and these before all else.
func rankOfKey(key string) int {
	for i, first := range []string{"method", "with", "options"} {
		if key == first || strings.HasPrefix(key, first+".") {
			return i
		}
	}
	return 3
}

// identity is that of the group's runs; nil where it is not known.
func (g *Group) identity() *experiment.Identity {
	for _, r := range g.Runs {
		if r.Identity != nil {
			return r.Identity
		}
	}
	return nil
}

// distinct is a folder's path below the folder that all have in common.
func distinct(folder string, all map[*Group]string) string {
	common := filepath.Dir(folder)
	for _, other := range all {
		for !within(other, common) {
			common = filepath.Dir(common)
		}
	}
	rel, err := filepath.Rel(common, folder)
	if err != nil {
		return folder
	}
	return filepath.ToSlash(rel)
}

// groups puts the cells below the given folders together, in the order of the plan: those of equal labels, as far as
// they are one experiment. Runs of another experiment than most of their point of the grid are given apart.
func (p *planned) groups(roots []string) (out []*Group, apart []*Run) {
	at := map[string]*Group{}
	for i, c := range p.Cells {
		dir := p.folder(c)
		if !slices.ContainsFunc(roots, func(root string) bool { return within(dir, root) }) {
			continue
		}
		key := fmt.Sprintf("%q", titles(p.Axes, c.Labels))
		g := at[key]
		if g == nil {
			g = &Group{Name: cmp.Or(titled(p.Axes, c.Labels), p.Name), Labels: c.Labels, Plan: p.Plan,
				Experiment: p.Dir + " " + key}
			at[key] = g
			out = append(out, g)
		}
		run := p.runs[i]
		if run == nil {
			run = &Run{Dir: dir, Name: filepath.Base(dir), Seed: c.Seed, State: Missing, Why: "not started"}
		}
		g.Runs = append(g.Runs, run)
	}
	for _, g := range out {
		sortRuns(g.Runs)
		apart = append(apart, p.separate(g)...)
	}
	return out, apart
}

// separate removes and returns the runs of a group that are of another experiment than most of it.
func (p *planned) separate(g *Group) (apart []*Run) {
	count := map[string]int{}
	most := ""
	for _, r := range g.Runs {
		if r.Identity == nil && r.State != Done && r.State != Unfinished {
			continue // nothing of it is averaged
		}
		e := experimentOf(r)
		if count[e]++; most == "" || count[e] > count[most] {
			most = e
		}
	}
	var kept *experiment.Identity
	for _, r := range g.Runs {
		if experimentOf(r) == most {
			kept = r.Identity
		}
	}
	g.Runs = slices.DeleteFunc(g.Runs, func(r *Run) bool {
		e := experimentOf(r)
		if count[e] == 0 || e == most {
			return false
		}
		apart = append(apart, r)
		why := "one of the two does not say which experiment it is"
		if kept != nil && r.Identity != nil {
			why = strings.Join(experiment.DifferingKeys([]*experiment.Identity{kept, r.Identity}), ", ") + " differ"
		}
		p.notes = append(p.notes, fmt.Sprintf("%s is another experiment than the other seeds of its cell (%s): it is "+
			"shown on its own", r.Dir, why))
		return true
	})
	return apart
}

// isGrid reports whether a sweep has something to compare. A sweep of a single point is a list of seeds: in a report
// with others its runs are shown like runs that belong to no sweep, in one table with them.
func (p *planned) isGrid() bool {
	return p.Card != nil || p.Smoke || slices.ContainsFunc(p.Axes, func(a configs.PlanAxis) bool {
		return len(a.Labels) > 1
	})
}

// distinctPlans gives sweeps of one name different names, by their folders.
func distinctPlans(plans []*Plan) {
	byName := map[string][]*Plan{}
	for _, p := range plans {
		byName[p.Name] = append(byName[p.Name], p)
	}
	for _, same := range byName {
		if len(same) < 2 {
			continue
		}
		folders := map[*Group]string{}
		of := map[*Plan]*Group{}
		for _, p := range same {
			of[p] = &Group{}
			folders[of[p]] = p.Dir
		}
		for _, p := range same {
			p.Name += " (" + distinct(p.Dir, folders) + ")"
		}
	}
}

// unidentified states in one note how many runs have no known experiment.
func unidentified(groups []*Group) []string {
	var dirs []string
	for _, g := range groups {
		for _, r := range g.Runs {
			if r.Identity == nil && (r.State == Done || r.State == Unfinished) {
				dirs = append(dirs, r.Dir)
			}
		}
	}
	if len(dirs) < 2 { // there is nothing to average
		return nil
	}
	return []string{fmt.Sprintf("%s without %s, such as %s: each stands alone, since nothing says whether they are "+
		"seeds of one experiment; run them again to have them averaged", experiment.Counted(len(dirs), "run"),
		experiment.IdentityFile, slices.Min(dirs))}
}

// Executions describes in one sentence how the execution of the runs of some groups differs, for captions; empty where
// it does not. Execution does not distinguish experiments, but may change the last bits of numbers.
func Executions(groups []*Group) string {
	values := map[string]map[string]int{}
	for _, g := range groups {
		for _, r := range g.Done() {
			for what, value := range r.Execution {
				if values[what] == nil {
					values[what] = map[string]int{}
				}
				values[what][value]++
			}
		}
	}
	var parts []string
	for _, what := range sortedKeys(values) {
		if of := values[what]; len(of) > 1 {
			var list []string
			for _, v := range slices.Sorted(maps.Keys(of)) {
				list = append(list, fmt.Sprintf("%s in %s", v, experiment.Counted(of[v], "run")))
			}
			parts = append(parts, what+" ("+strings.Join(list, ", ")+")")
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "The runs were executed differently: " + strings.Join(parts, "; ") + "."
}
