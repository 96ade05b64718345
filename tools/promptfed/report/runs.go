package report

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/runtime/convert"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/runfolder"
)

func runsCommand() *cobra.Command {
	return cli.Group("runs", "list, compare, tag, export and remove run folders", runsList(), runsCompare(), runsDiff(),
		runsExport(), runsLog(), runsTag(), runsRemove())
}

// foundRun is a run and its group.
type foundRun struct {
	*results.Run
	group *results.Group
}

// loadRuns reads the runs in and below some folders. The default is the folder runs.
func loadRuns(dirs []string) (*results.Results, error) {
	if len(dirs) == 0 {
		dirs = []string{cli.RunsFolder}
	}

	all, err := results.Load(dirs...)
	if err != nil {
		return nil, cli.Usage(err)
	}

	return all, nil
}

// findRuns lists the runs that loadRuns reads.
func findRuns(dirs []string) ([]foundRun, error) {
	all, err := loadRuns(dirs)
	if err != nil {
		return nil, err
	}

	var out []foundRun
	for _, g := range all.Groups {
		for _, r := range g.Runs {
			if r.State != results.Missing {
				out = append(out, foundRun{r, g})
			}
		}
	}

	return out, nil
}

// folderSeen returns the folder of a run relative to the current folder.
func folderSeen(dir string) string {
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, dir); err == nil && len(rel) < len(dir) {
			return rel
		}
	}
	return dir
}

func runsList() *cobra.Command {
	var tags []string
	var state, metric string
	command := &cobra.Command{Use: "list [DIR...] [--tag WORD] [--status running|done|failed|...]",
		Short: "list runs: folder, method, seed, state, rounds, accuracy, tags, last sign of life, remaining time"}
	command.Flags().StringSliceVar(&tags, "tag", nil, "only runs with all of these tags")
	states := slices.DeleteFunc(slices.Clone(results.States), func(s results.State) bool {
		return s == results.Missing
	})
	command.Flags().StringVar(&state, "status", "", fmt.Sprintf("only runs in this state: %v", states))
	command.Flags().StringVar(&metric, "metric", "", "metric to show (default: the accuracy)")
	result := cli.AddJSON(command, []listedRun{})
	command.RunE = func(_ *cobra.Command, dirs []string) error {
		if state != "" && !slices.Contains(states, results.State(state)) {
			return cli.Usagef("--status %q: expected one of %v", state, states)
		}

		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}

		runs = slices.DeleteFunc(runs, func(r foundRun) bool {
			return state != "" && string(r.State) != state || slices.ContainsFunc(tags, func(t string) bool {
				return !slices.Contains(r.Tags, t)
			})
		})

		measure, err := results.ParseMetric(cmp.Or(metric, metrics.Last))
		if err != nil {
			return cli.Usagef("--metric: %w", err)
		}

		var list []listedRun
		for _, r := range runs {
			l := listedRun{folderSeen(r.Dir), r.Name, r.Method, r.Seed, r.State, r.Reason, len(r.Rounds), r.Planned,
				r.Tags, measure.Name, measure.View(r.Run), valueOf(measure, r.Run), nil, nil, r.Run}
			if !r.Sign.IsZero() {
				l.Sign = &r.Sign
			}
			if left := r.Left.Seconds(); left > 0 {
				l.Left = &left
			}
			list = append(list, l)
		}

		if len(list) == 0 {
			return result.Print(list, "no runs\n")
		}

		return result.Print(list, runTable(list, measure))
	}

	return command
}

// listedRun is a run with one metric, in shares of 1, bytes and seconds; NaN if the run does not have it.
type listedRun struct {
	Folder  string        `json:"folder"`
	Name    string        `json:"name"`
	Method  string        `json:"method"`
	Seed    uint64        `json:"seed"`
	State   results.State `json:"state"`
	Why     string        `json:"why"`
	Rounds  int           `json:"rounds"`
	Planned int           `json:"planned_rounds"`
	Tags    []string      `json:"tags"`
	Metric  string        `json:"metric"`
	View    string        `json:"view"` // evaluation of the metric, if it has one
	Value   float64       `json:"value"`
	// Sign is the time of the last sign of life of a run without a result, Left its remaining time; nil if unknown.
	Sign *time.Time `json:"last_sign"`
	Left *float64   `json:"remaining_seconds"`

	run *results.Run
}

// runTable returns a table with a row for each run.
func runTable(runs []listedRun, metric results.Metric) string {
	rows := [][]string{{"run", "method", "state", "tags", "seed", "rounds", headOf(metric, metric)}}
	values := shown(metric, convert.Slice(runs, func(r listedRun) float64 { return r.Value }),
		convert.Slice(runs, func(r listedRun) string { return r.View }))
	open := slices.ContainsFunc(runs, func(r listedRun) bool { return r.Sign != nil })
	if open {
		rows[0] = append(rows[0], "last sign of life", "remaining")
	}

	for i, listedRun := range runs {
		rounds := strconv.Itoa(listedRun.Rounds)
		if listedRun.State != results.Done && listedRun.Planned > 0 {
			rounds += " of " + strconv.Itoa(listedRun.Planned)
		}

		folder := listedRun.Folder
		if listedRun.run.Joined { // it is called after the client
			folder += " (" + listedRun.Name + ")"
		}

		rows = append(rows, []string{folder, listedRun.Method, string(listedRun.State), strings.Join(listedRun.Tags,
			","), strconv.FormatUint(listedRun.Seed, 10), rounds, values[i]})
		if last := len(rows) - 1; open {
			sign := ""
			if listedRun.Sign != nil {
				sign = listedRun.Sign.Format(time.DateTime)
			}
			rows[last] = append(rows[last], sign, listedRun.run.Remaining())
		}
	}

	return tables.PlainText(rows, 4)
}

// missing stands for a value that a run does not have.
const missing = "–"

// headOf returns the name of a metric with its unit. The name includes the window of rounds if other has a different
// one.
func headOf(m, other results.Metric) string {
	name := m.ColumnHead(other)
	if unit := string(m.Unit); unit != "" && unit != m.Name {
		return name + " (" + unit + ")"
	}
	return name
}

// valueOf returns a metric of a run; NaN if the run does not have it.
func valueOf(m results.Metric, r *results.Run) float64 {
	if v, ok := m.Value(r); ok {
		return v
	}
	return math.NaN()
}

// shown formats values of a metric, with their evaluations if these differ.
func shown(m results.Metric, values []float64, views []string) (texts []string) {
	several := slices.Contains(views, results.GlobalView) && slices.Contains(views, results.PersonalView)
	for i, v := range values {
		text := missing
		if !math.IsNaN(v) {
			text = strconv.FormatFloat(m.Factor()*v, 'f', 2, 64)
			if several {
				text += " " + views[i]
			}
		}
		texts = append(texts, text)
	}
	return texts
}

func runsCompare() *cobra.Command {
	var asked string
	command := &cobra.Command{Use: "compare DIR DIR... [--metric NAME,...]", Args: cli.AtLeast(2),
		Short: "compare metrics of runs, a column for each"}
	command.Flags().StringVar(&asked, "metric", "", "metrics to show, separated by commas: "+
		strings.Join(metrics.Names(), ", "))
	result := cli.AddJSON(command, comparedRuns{})
	command.RunE = func(_ *cobra.Command, dirs []string) error {
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}

		var groups []*results.Group
		var out comparedRuns
		for _, r := range runs {
			groups, out.Runs = append(groups, r.group), append(out.Runs, folderSeen(r.Dir))
		}

		names := strings.Split(asked, ",")
		if asked == "" {
			names = results.MainMetrics(results.DefaultMetric(groups), groups)
		}

		rows := [][]string{append([]string{"metric"}, out.Runs...)}
		var first results.Metric
		for i, name := range names {
			measure, err := results.ParseMetric(name)
			if err != nil {
				return cli.Usagef("--metric: %w", err)
			}

			if i == 0 {
				first = measure
			}

			metric := comparedMetric{Metric: measure.Name, Unit: string(measure.Unit)}
			for _, r := range runs {
				metric.Values = append(metric.Values, valueOf(measure, r.Run))
				metric.Views = append(metric.Views, measure.View(r.Run))
			}

			row := append([]string{headOf(measure, first)}, shown(measure, metric.Values, metric.Views)...)
			if slices.ContainsFunc(row[1:], func(v string) bool { return v != missing }) {
				rows, out.Metrics = append(rows, row), append(out.Metrics, metric)
			}
		}

		return result.Print(out, tables.PlainText(rows, 1))
	}

	return command
}

// comparedRuns has a value of each metric for each run, in the order of the runs.
type comparedRuns struct {
	Runs    []string         `json:"runs"` // folders
	Metrics []comparedMetric `json:"metrics"`
}

type comparedMetric struct {
	Metric string    `json:"metric"`
	Unit   string    `json:"unit"` // on the screen; values in % are shares of 1 here
	Values []float64 `json:"values"`
	Views  []string  `json:"views"` // evaluations of Values; empty for metrics without
}

func runsDiff() *cobra.Command {
	command := &cobra.Command{Use: "diff DIR DIR...", Args: cli.AtLeast(2),
		Short: "show the settings that differ between runs, a column for each"}
	result := cli.AddJSON(command, runDifferences{})
	command.RunE = func(_ *cobra.Command, dirs []string) error {
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}

		var configs []string
		var out runDifferences
		for _, r := range runs {
			configs, out.Runs = append(configs, r.Config), append(out.Runs, folderSeen(r.Dir))
		}

		keys, values, _ := results.ConfigDifferences(configs)
		rows := [][]string{append([]string{"setting"}, out.Runs...)}
		for i, key := range keys {
			row, setting := []string{key}, runSetting{Key: key}
			for _, value := range values {
				text := missing
				if value[i] != nil {
					text = *value[i]
				}
				row, setting.Values = append(row, text), append(setting.Values, value[i])
			}
			rows, out.Settings = append(rows, row), append(out.Settings, setting)
		}

		if len(keys) == 0 {
			return result.Print(out, fmt.Sprintf("the configurations of the %d runs do not differ\n", len(runs)))
		}

		return result.Print(out, tables.PlainText(rows, len(rows[0])))
	}

	return command
}

// runDifferences has the settings that differ, with a value for each run in the order of the runs; nil for a run
// without the setting.
type runDifferences struct {
	Runs     []string     `json:"runs"` // folders
	Settings []runSetting `json:"settings"`
}

type runSetting struct {
	Key    string    `json:"key"`
	Values []*string `json:"values"` // as YAML on one line
}

func runsTag() *cobra.Command {
	var add, remove []string
	command := &cobra.Command{Use: "tag DIR... --add WORD,... [--remove WORD,...]", Args: cli.AtLeast(1),
		Short: "add or remove tags of runs, by which list and ui filter"}
	command.Flags().StringSliceVar(&add, "add", nil, "tags to add")
	command.Flags().StringSliceVar(&remove, "remove", nil, "tags to remove")
	result := cli.AddJSON(command, []taggedRun{})
	command.RunE = func(_ *cobra.Command, dirs []string) error {
		if len(add)+len(remove) == 0 {
			return cli.Usagef("tag: give tags with --add or --remove")
		}

		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}

		var out []taggedRun
		for _, r := range runs {
			if err := r.Tag(add, remove); err != nil {
				return cli.Usage(err)
			}
			result.Say("%s: %s", folderSeen(r.Dir), strings.Join(r.Tags, ", "))
			out = append(out, taggedRun{folderSeen(r.Dir), r.Tags})
		}

		return result.Print(out, "")
	}

	return command
}

type taggedRun struct {
	Folder string   `json:"folder"`
	Tags   []string `json:"tags"`
}

func runsRemove() *cobra.Command {
	var yes bool
	command := &cobra.Command{Use: "rm DIR... [--yes]", Args: cli.AtLeast(1),
		Short: "remove run folders; without --yes, only list them"}
	command.Flags().BoolVar(&yes, "yes", false, "remove them")
	result := cli.AddJSON(command, removedRuns{})
	command.RunE = func(_ *cobra.Command, dirs []string) error {
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}

		what, all := "would remove", []string(nil)
		for _, r := range runs {
			if info, err := os.Lstat(r.Dir); err != nil || !info.IsDir() {
				return fmt.Errorf("%s no longer exists; nothing was removed", r.Dir)
			}
			all = append(all, r.Dir)
		}

		if yes {
			what = "removed"
			if err := runfolder.Remove(all); err != nil {
				return err
			}
		}

		out := removedRuns{Removed: yes}
		var text strings.Builder
		for _, dir := range all {
			out.Folders = append(out.Folders, folderSeen(dir))
			fmt.Fprintln(&text, what, folderSeen(dir))
		}

		if !yes {
			fmt.Fprintf(&text, "nothing was removed; --yes removes %s with all files in them\n",
				experiment.CountInWords(len(runs), "run folder"))
		}

		return result.Print(out, text.String())
	}

	return command
}

type removedRuns struct {
	Removed bool     `json:"removed"` // false without --yes
	Folders []string `json:"folders"`
}
