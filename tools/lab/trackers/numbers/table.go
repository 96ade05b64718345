package numbers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/record"
	"promptfed/tools/lab/results"
)

// SummaryKey is the prefix of the names of numbers in a summary.json.
const SummaryKey = "summary"

// Write writes the numbers of results as a table in one of Formats, one line per number, in the order of the runs: the
// numbers of every round, then with an empty round the metrics of a finished run and the numbers of its summary.
// Folders of runs are relative to from. It returns the number of lines.
func Write(w io.Writer, form string, loaded *results.Results, from string) (rows int, err error) {
	columns := []column{{"run", text}, {"sweep", optional}, {"method", text}, {"seed", unsigned}}
	var axes []string
	planned := slices.DeleteFunc(slices.Clone(loaded.Groups), func(g *results.Group) bool { return g.Plan == nil })
	for _, a := range results.Axes(planned) {
		axes, columns = append(axes, a.Name), append(columns, column{"axis." + a.Name, optional})
	}

	settings, values := settingsOf(loaded)
	columns = slices.Concat(columns, settings, []column{{"round", optionalInteger}, {"view", optional}, {"name", text},
		{"client", optionalInteger}, {"value", number}})
	table, err := newTable(w, form, columns)
	if err != nil {
		return 0, err
	}

	metrics := results.AllMetrics(loaded.Groups)
	for _, group := range loaded.Groups {
		for _, run := range group.Runs {
			if run.State == results.Missing {
				continue
			}

			dir := run.Dir
			if rel, err := filepath.Rel(from, dir); err == nil {
				dir = rel
			}

			columns := []any{filepath.ToSlash(dir), nil, run.Method, run.Seed}
			if group.Plan != nil {
				columns[1] = group.Plan.Name
			}

			for _, a := range axes {
				columns = append(columns, nil)
				if label, ok := group.Labels[a]; ok && group.Plan != nil {
					columns[len(columns)-1] = label
				}
			}

			for _, s := range settings {
				columns = append(columns, s.value(values[run][s.name]))
			}

			add := func(round any, view, name string, client any, value float64) error {
				var evaluation any
				if view != "" {
					evaluation = view
				}
				rows++
				return table.add(append(slices.Clip(columns), round, evaluation, name, client, value))
			}

			if err := each(run, metrics, add); err != nil {
				return rows, fmt.Errorf("%s: %w", run.Dir, err)
			}
		}
	}

	return rows, table.close()
}

// settings are the keys of the configuration with a column in every table.
var settings = []string{"data.set", "partition.kind", "partition.clients", "backbones", "train.lr"}

// settingsOf returns the columns of settings, those that differ between runs among them, and the texts of all settings.
func settingsOf(r *results.Results) (columns []column, values map[*results.Run]map[string]string) {
	values = map[*results.Run]map[string]string{}
	var configs []string
	for run := range results.Runs(r.Groups) {
		configs, values[run] = append(configs, run.Config), map[string]string{}
		for _, s := range results.Settings(run.Config) {
			values[run][s.Key] = s.Value
		}
	}

	differing, _, _ := results.ConfigDifferences(configs)
	for _, key := range append(slices.Clip(settings), differing...) {
		in := func(c column) bool { return c.name == key }
		if slices.Contains([]string{"method", "with", "seed"}, key) || slices.ContainsFunc(columns, in) {
			continue // method and seed have columns
		}

		kind := optionalInteger
		for run := range values {
			v, ok := values[run][key]
			if _, err := strconv.ParseInt(v, 10, 64); ok && err != nil && kind == optionalInteger {
				kind = optionalNumber
			}
			if _, err := strconv.ParseFloat(v, 64); ok && err != nil {
				kind = optional
			}
		}

		columns = append(columns, column{key, kind})
	}

	return columns, values
}

// each calls f for the numbers of the valid rounds of a run, counted from 1, and with a nil round for the metrics and
// for the numbers of its summary if it has one.
func each(run *results.Run, names []string, add func(round any, view, name string, client any,
	value float64) error) error {
	all := func(round any, list []Number, err error) error {
		for _, n := range evaluated(list) {
			var client any
			if n.Client != NoClient {
				client = int64(n.Client)
			}
			if err == nil {
				err = add(round, n.view, n.Name("."), client, n.Value)
			}
		}
		return err
	}

	if len(run.Rounds) > 0 {
		file, err := os.Open(filepath.Join(run.Dir, record.RoundsFile))
		if err != nil {
			return err
		}
		defer file.Close()

		in := bufio.NewReader(file)
		for i := range run.Rounds {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return err
			}
			list, err := Parse(line, "round")
			if err := all(int64(i)+1, list, err); err != nil {
				return err
			}
		}
	}

	if run.State != results.Done {
		return nil
	}

	for _, name := range names {
		m, err := results.ParseMetric(name)
		if err != nil {
			continue // the domain's name is not valid in a metric
		}

		metrics := map[string]results.Metric{"": m}
		if m.UsesHeadline() {
			metrics = map[string]results.Metric{results.GlobalView: m.InEvaluation(results.GlobalView),
				results.PersonalView: m.InEvaluation(results.PersonalView)}
		} else if m.Evaluated { // last in one evaluation
			continue
		}

		for _, view := range results.SortedKeys(metrics) {
			if v, ok := metrics[view].Value(run); ok {
				if err := add(nil, view, name, nil, v); err != nil {
					return err
				}
			}
		}
	}

	list, err := ParseSummary(run.Dir)
	list = slices.DeleteFunc(list, func(n Number) bool { return slices.Contains(inMetrics, n.Name(".")) })
	return all(nil, list, err)
}

// inMetrics are numbers of a summary that are metrics too: last, last5, last10 and best.
var inMetrics = []string{"summary.last", "summary.mean_last_5", "summary.mean_last_10", "summary.best"}

// ofView is a number with its evaluation; empty for none.
type ofView struct {
	Number
	view string
}

// evaluated moves evaluations from the paths of numbers to their views: evaluations.global.f1 becomes f1. It omits the
// headline, which is one of the evaluations, and counts rounds from 1.
func evaluated(list []Number) []ofView {
	var out []ofView
	seen := map[string]bool{}
	for _, n := range list {
		v := ofView{Number: n}
		if i := slices.Index(n.Path, "evaluations"); i >= 0 && i+2 < len(n.Path) {
			v.view, v.Path = n.Path[i+1], slices.Delete(slices.Clone(n.Path), i, i+2)
			seen[v.Name(".")] = true
		}
		if key := n.Path[len(n.Path)-1]; key == "round" || strings.HasSuffix(key, "_round") {
			v.Value++
		}
		out = append(out, v)
	}

	return slices.DeleteFunc(out, func(v ofView) bool { return v.view == "" && seen[v.Name(".")] })
}

// ParseSummary lists the numbers of the summary of a finished run, each below SummaryKey.
func ParseSummary(dir string) ([]Number, error) {
	text, err := os.ReadFile(filepath.Join(dir, record.SummaryFile))
	if err != nil {
		return nil, err
	}

	list, err := Parse(text)
	for i, n := range list {
		list[i].Path = append([]string{SummaryKey}, n.Path...)
	}

	return list, err
}
