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
	"promptfed/federation/experiment/identity"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/runfolder"
)

// experimentOf returns a key that is equal for runs of one experiment, which differ only in the seed. A run with an
// incompletely known experiment has its own key.
func experimentOf(r *Run) string {
	if r.Identity == nil || len(r.Identity.Unknown) > 0 {
		return "run " + r.Dir
	}
	return r.Identity.Fingerprint
}

// grouping groups runs by experiment. A second run of one experiment and seed is not another seed and becomes its own
// group.
type grouping struct {
	groups []*Group
	at     map[string]*Group
	notes  []string
}

// add adds runs without a grid, with a name for their groups. Runs that did not start join the experiment of the other
// runs beside them.
func (l *grouping) add(name string, runs ...*Run) {
	key := ""
	for _, r := range runs {
		if r.State != Missing {
			key = experimentOf(r)
			break
		}
	}

	for _, run := range runs {
		if run.State != Missing || key == "" {
			key = experimentOf(run)
		}

		at := key
		if g := l.at[key]; g != nil {
			if i := slices.IndexFunc(g.Runs, func(o *Run) bool { return o.Seed == run.Seed }); i >= 0 {
				at = "run " + run.Dir
				l.notes = append(l.notes, fmt.Sprintf("%s is the experiment and the seed of %s: it is shown on its "+
					"own and is no further seed", run.Dir, g.Runs[i].Dir))
			}
		}

		g := l.at[at]
		if g == nil {
			g = &Group{Name: name, Experiment: at}
			l.at[at] = g
			l.groups = append(l.groups, g)
		}

		g.Runs = append(g.Runs, run)
	}
}

// finish sets the names and labels of the groups.
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

// mostNamedKeys is the largest number of differing keys in a name. Groups that differ only in other keys are named by
// their folders.
const mostNamedKeys = 4

// nameByDifference assigns different names to groups of one name: the differing keys of their experiments, else their
// folders.
func nameByDifference(groups []*Group) {
	byName := map[string][]*Group{}
	for _, g := range groups {
		byName[g.Name] = append(byName[g.Name], g)
	}

	for _, name := range SortedKeys(byName) {
		same := byName[name]
		if len(same) < 2 {
			continue
		}

		folders := convert.Slice(same, folderOf)
		names := differing(same)
		times := map[string]int{}
		for _, n := range names {
			times[n]++
		}

		for i, g := range same {
			switch n := names[i]; {
			case n == "":
				g.Name = distinct(folders[i], folders)
			case times[n] > 1:
				g.Name = name + ", " + n + ", " + distinct(folders[i], folders)
			default:
				g.Name = name + ", " + n
			}
		}
	}
}

// folderOf returns the folder of a group: its run's folder, or the folder above its seeds.
func folderOf(g *Group) string {
	dir := g.Runs[0].Dir
	if runfolder.SeedFolder.MatchString(filepath.Base(dir)) && len(g.Runs) > 1 {
		return filepath.Dir(dir)
	}
	return dir
}

// differing describes each group by its values of the keys that differ among the groups, such as "method=fedpgp,
// train.lr=0.1"; empty if unknown.
func differing(groups []*Group) []string {
	out := make([]string, len(groups))
	var known []*identity.Identity
	for _, g := range groups {
		if id := g.Identity(); id != nil {
			known = append(known, id)
		}
	}

	keys := identity.CommonKeys(identity.DifferingKeys(known), known)
	if slices.Contains(keys, "method") || slices.Contains(keys, "with") { // different methods have different options
		keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "options.") })
	}

	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(rankOfKey(a), rankOfKey(b)) })
	keys = keys[:min(len(keys), mostNamedKeys)]
	for i, g := range groups {
		id := g.Identity()
		if id == nil {
			continue
		}
		var parts []string
		for _, k := range keys {
			if _, has := id.Values[k]; has {
				parts = append(parts, k+"="+id.ValueAmong(k, known))
			}
		}
		out[i] = strings.Join(parts, ", ")
	}

	return out
}

// rankOfKey sorts the method first, then its options, then all other keys.
func rankOfKey(key string) int {
	for i, first := range []string{"method", "with", "options"} {
		if key == first || strings.HasPrefix(key, first+".") {
			return i
		}
	}
	return 3
}

// Identity returns the identity of the group's runs; nil if unknown.
func (g *Group) Identity() *identity.Identity {
	for _, r := range g.Runs {
		if r.Identity != nil {
			return r.Identity
		}
	}
	return nil
}

// distinct returns a folder's path below the common parent of all folders.
func distinct(folder string, all []string) string {
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

// group groups the cells below the given folders in the order of the plan, by equal labels and one experiment. It
// returns the runs whose experiment differs from the majority at their point of the grid.
func (p *planned) group(roots []string) (apart []*Run) {
	at := map[string]*Group{}
	for i, planCell := range p.Cells {
		dir := p.folder(planCell)
		if !slices.ContainsFunc(roots, func(root string) bool { return within(dir, root) }) {
			continue
		}

		key := fmt.Sprintf("%q", titles(p.Axes, planCell.Labels))
		group := at[key]
		if group == nil {
			group = &Group{Name: cmp.Or(titled(p.Axes, planCell.Labels), p.Name), Labels: planCell.Labels, Plan: p.Plan,
				Experiment: p.Dir + " " + key}
			at[key] = group
			p.groups = append(p.groups, group)
		}

		run := p.runs[i]
		if run == nil {
			run = &Run{Dir: dir, Name: filepath.Base(dir), Seed: planCell.Seed, State: Missing, Reason: "not started"}
		}

		group.Runs = append(group.Runs, run)
	}

	for _, g := range p.groups {
		sortRuns(g.Runs)
		apart = append(apart, p.separate(g)...)
	}

	return apart
}

// separate removes and returns the runs of a group whose experiment differs from the majority.
func (p *planned) separate(group *Group) (apart []*Run) {
	count := map[string]int{}
	most := ""
	var kept *identity.Identity // of the majority
	for _, r := range group.Runs {
		if r.Identity == nil && !r.State.begun() {
			continue // none of these runs is averaged
		}
		e := experimentOf(r)
		if count[e]++; most == "" || count[e] > count[most] {
			most, kept = e, r.Identity
		}
	}

	group.Runs = slices.DeleteFunc(group.Runs, func(run *Run) bool {
		e := experimentOf(run)
		if count[e] == 0 || e == most {
			return false
		}
		apart = append(apart, run)
		why := "one of the two does not say which experiment it is"
		if kept != nil && run.Identity != nil {
			why = strings.Join(identity.DifferingKeys([]*identity.Identity{kept, run.Identity}), ", ") + " differ"
		}
		p.notes = append(p.notes, fmt.Sprintf("%s is another experiment than the other seeds of its cell (%s): it is "+
			"shown on its own", run.Dir, why))
		return true
	})

	return apart
}

// merge adds the points and groups of another sweep.
func (p *planned) merge(other *planned) error {
	if !slices.EqualFunc(p.Axes, other.Axes, func(a, b Axis) bool { return a.Name == b.Name }) {
		return fmt.Errorf("the axes of %s and %s differ; only sweeps of the same axes are merged", p.Dir, other.Dir)
	}

	for i, a := range other.Axes {
		p.Axes[i].Labels = AppendMissing(p.Axes[i].Labels, a.Labels...)
	}

	if other.Name != p.Name {
		p.Name += " + " + other.Name
	}

	p.Merged, p.Smoke, p.Card = true, p.Smoke || other.Smoke, cmp.Or(p.Card, other.Card)
	for _, group := range other.groups {
		group.Plan = p.Plan
		at := slices.IndexFunc(p.groups, func(o *Group) bool { return o.Has(group.Labels) })
		if at < 0 {
			p.groups = append(p.groups, group)
			continue
		}

		there := p.groups[at]
		a, b := there.Identity(), group.Identity()
		switch {
		case len(group.Done()) == 0:
		case len(there.Done()) == 0:
			p.groups[at] = group
		case a == nil || b == nil || !a.Same(*b):
			return fmt.Errorf("%s of %s and of %s are different experiments; give them different labels", group.Name,
				p.Dir, other.Dir)
		default:
			for _, r := range group.Runs {
				i := slices.IndexFunc(there.Runs, func(o *Run) bool { return o.Seed == r.Seed })
				switch {
				case i < 0:
					there.Runs = append(there.Runs, r)
				case there.Runs[i].State != Done && r.State != Missing: // a later attempt
					there.Runs[i] = r
				}
			}
			sortRuns(there.Runs)
		}
	}

	return nil
}

// AppendMissing appends the values that a list lacks, each once.
func AppendMissing[T comparable](list []T, more ...T) []T {
	for _, v := range more {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// isGrid reports whether a sweep compares anything. A sweep with a single point is a list of seeds. Reports with other
// runs show its runs like runs without a sweep, in one table.
func (p *planned) isGrid() bool {
	return p.Card != nil || p.Smoke || slices.ContainsFunc(p.Axes, func(a configs.PlanAxis) bool {
		return len(a.Labels) > 1
	})
}

// distinctPlans assigns different names to sweeps of one name, from their folders.
func distinctPlans(plans []*Plan) {
	byName := map[string][]*Plan{}
	for _, p := range plans {
		byName[p.Name] = append(byName[p.Name], p)
	}

	for _, same := range byName {
		if len(same) < 2 {
			continue
		}
		folders := convert.Slice(same, func(p *Plan) string { return p.Dir })
		for _, p := range same {
			p.Name += " (" + distinct(p.Dir, folders) + ")"
		}
	}
}

// unidentified returns one note with the number of runs without a known experiment.
func unidentified(groups []*Group) []string {
	var dirs []string
	for r := range Runs(groups) {
		if r.Identity == nil && !r.Joined && r.State.begun() {
			dirs = append(dirs, r.Dir)
		}
	}

	if len(dirs) < 2 { // nothing to average
		return nil
	}

	return []string{fmt.Sprintf("%s without %s, such as %s: each stands alone, since nothing says whether they are "+
		"seeds of one experiment; run them again to have them averaged", experiment.CountInWords(len(dirs), "run"),
		identity.File, slices.Min(dirs))}
}

// ReproducedDefects returns a sentence for captions about known defects of published code that finished runs reproduced
// on purpose; empty for none.
func ReproducedDefects(groups []*Group) string {
	count, done := map[string]int{}, 0
	for r := range DoneRuns(groups) {
		done++
		for _, defect := range r.Summary.Reproduces {
			count[defect]++
		}
	}

	var parts []string
	for _, defect := range SortedKeys(count) {
		parts = append(parts, fmt.Sprintf("%s (%d of %d runs)", oneline.Text(defect), count[defect], done))
	}

	if len(parts) == 0 {
		return ""
	}

	return "Known defects of published code, reproduced on purpose: " + strings.Join(parts, ", ") + "."
}

// ExecutionDifferences describes in one sentence the differences in execution among the runs of some groups, for
// captions; empty without differences. Execution does not distinguish experiments, but may change the last bits of
// numbers.
func ExecutionDifferences(groups []*Group) string {
	values := map[string]map[string]int{}
	for r := range DoneRuns(groups) {
		for what, value := range r.Execution {
			if values[what] == nil {
				values[what] = map[string]int{}
			}
			values[what][value]++
		}
	}

	var parts []string
	for _, what := range SortedKeys(values) {
		if runs := values[what]; len(runs) > 1 {
			var list []string
			for _, v := range slices.Sorted(maps.Keys(runs)) {
				list = append(list, fmt.Sprintf("%s in %s", v, experiment.CountInWords(runs[v], "run")))
			}
			parts = append(parts, what+" ("+strings.Join(list, ", ")+")")
		}
	}

	if len(parts) == 0 {
		return ""
	}

	return "The runs were executed differently: " + strings.Join(parts, "; ") + "."
}
