package results

import (
	"math"
	"path/filepath"
	"strings"

	"promptfed/federation/engine/metrics"
)

// JSON is report.json: the content of a report for other programs. Undefined numbers are null.
type JSON struct {
	Groups       []GroupJSON      `json:"groups"`
	Significance []ComparisonJSON `json:"significance"`
	Ranks        []RankingJSON    `json:"ranks,omitempty"`
	Notes        []string         `json:"notes"`
}

// GroupJSON is one point of a grid.
type GroupJSON struct {
	Sweep  string            `json:"sweep,omitempty"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Method string            `json:"method"`
	// Experiment is the fingerprint of experiment.json; absent if unknown.
	Experiment string `json:"experiment,omitempty"`
	// View is the evaluation of metrics whose name has none; absent if no run is finished.
	View string    `json:"view,omitempty"`
	Runs []RunJSON `json:"runs"`
	// Metrics of finished runs by the name of the metric, in shares of 1, bytes and seconds.
	Metrics map[string]StatJSON `json:"metrics"`

	group *Group
}

// RunJSON is one run folder.
type RunJSON struct {
	Folder string `json:"folder"` // relative to the report's folder
	Seed   uint64 `json:"seed"`
	State  State  `json:"state"`
	Why    string `json:"why,omitempty"`
	Rounds int    `json:"rounds"`
}

// StatJSON is a metric over seeds.
type StatJSON struct {
	Mean      *float64  `json:"mean"`
	StdSample *float64  `json:"std_sample"` // n-1 for n seeds
	Seeds     []uint64  `json:"seeds"`
	Values    []float64 `json:"values"`
}

// ComparisonJSON is a Comparison; differences are a minus b.
type ComparisonJSON struct {
	Sweep        string   `json:"sweep,omitempty"`
	Axis         string   `json:"axis"`
	Metric       string   `json:"metric"`
	A            string   `json:"a"`
	B            string   `json:"b"`
	Level        Level    `json:"level"`
	Runs         int      `json:"runs"`
	N            int      `json:"n"`
	Difference   *float64 `json:"difference"`
	Low          *float64 `json:"low"`
	High         *float64 `json:"high"`
	Cohen        *float64 `json:"cohen_d"`
	RankBiserial *float64 `json:"rank_biserial"`
	T            *float64 `json:"t"`
	TP           *float64 `json:"t_p"`
	TPHolm       *float64 `json:"t_p_holm"`
	W            *float64 `json:"wilcoxon"`
	WP           *float64 `json:"wilcoxon_p"`
	WPHolm       *float64 `json:"wilcoxon_p_holm"`
}

// RankingJSON is a Ranking, with ranks by block and label.
type RankingJSON struct {
	Sweep              string      `json:"sweep,omitempty"`
	Axis               string      `json:"axis"`
	Metric             string      `json:"metric"`
	Labels             []string    `json:"labels"`
	NotRanked          []string    `json:"not_ranked"`
	Blocks             []string    `json:"blocks"`
	Ranks              [][]float64 `json:"ranks"`
	MeanRanks          []float64   `json:"mean_ranks"`
	ChiSquare          *float64    `json:"chi_square"`
	ChiSquareP         *float64    `json:"chi_square_p"`
	F                  *float64    `json:"f"`
	FP                 *float64    `json:"f_p"`
	CriticalDifference *float64    `json:"critical_difference"`
}

// Export returns report.json of the results, without notes, and with paths relative to a folder. Add adds comparisons.
func (r *Results) Export(folder string) *JSON {
	out := &JSON{Groups: []GroupJSON{}, Significance: []ComparisonJSON{}, Notes: []string{}}
	for _, g := range r.Groups {
		j := GroupJSON{Sweep: g.Plan.Sweep(), Name: g.Name, Labels: g.Labels, Method: g.Method(),
			View:    strings.Join(usual(metrics.Accuracy, "").Views([]*Group{g}), ", "),
			Metrics: map[string]StatJSON{}, group: g}
		if id := g.Identity(); id != nil && len(id.Unknown) == 0 {
			j.Experiment = id.Fingerprint
		}
		for _, run := range g.Runs {
			j.Runs = append(j.Runs, run.Export(folder))
		}
		out.Groups = append(out.Groups, j)
	}

	for _, name := range AllMetrics(r.Groups) {
		if m, err := ParseMetric(name); err == nil { // the domain's name may not be valid in a metric
			out.Measure(m)
		}
	}

	return out
}

// Measure adds a metric to the groups whose finished runs have it.
func (j *JSON) Measure(m Metric) {
	for _, g := range j.Groups {
		if s := g.group.Stat(m); s.N() > 0 {
			g.Metrics[m.Name] = StatJSON{finite(s.Mean()), finite(s.Std()), s.Seeds, s.Values}
		}
	}
}

// Export returns the JSON form of the run, with the path relative to a folder.
func (r *Run) Export(folder string) RunJSON {
	dir := r.Dir
	if rel, err := filepath.Rel(folder, dir); err == nil {
		dir = rel
	}
	return RunJSON{filepath.ToSlash(dir), r.Seed, r.State, r.Reason, len(r.Rounds)}
}

// Add adds comparisons along an axis of a plan; nil means no plan.
func (j *JSON) Add(p *Plan, axis string, m Metric, list []Comparison) {
	for _, c := range list {
		j.Significance = append(j.Significance, ComparisonJSON{p.Sweep(), axis, m.Name, c.A, c.B, c.Level, c.Runs,
			c.N, finite(c.Difference), finite(c.Low), finite(c.High), finite(c.Cohen), finite(c.RankBiserial),
			finite(c.T.Statistic), finite(c.T.P), finite(c.HolmT), finite(c.Wilcoxon.Statistic), finite(c.Wilcoxon.P),
			finite(c.HolmWilcoxon)})
	}
}

// AddRanking adds the ranking of an axis of a plan; nil means no plan.
func (j *JSON) AddRanking(p *Plan, axis string, m Metric, r Ranking) {
	j.Ranks = append(j.Ranks, RankingJSON{p.Sweep(), axis, m.Name, r.Labels, append([]string{}, r.Unranked...),
		r.Blocks, r.Ranks, r.Mean, finite(r.ChiSquare.Statistic), finite(r.ChiSquare.P),
		finite(r.ImanDavenport.Statistic), finite(r.ImanDavenport.P), finite(r.CriticalDifference)})
}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
