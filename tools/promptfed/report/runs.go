package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/experiment"
	"promptfed/tools/lab/page"
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
	c := &cobra.Command{Use: "list [DIR...] [--tag WORD] [--state done|unfinished|failed]",
		Short: "list runs: folder, method, seed, state, rounds, accuracy, tags"}
	c.Flags().StringSliceVar(&tags, "tag", nil, "only runs with all of these tags")
	c.Flags().StringVar(&state, "state", "", "only runs in this state")
	c.Flags().StringVar(&metric, "metric", "", "metric to show (default: the accuracy)")
	c.RunE = func(_ *cobra.Command, dirs []string) error {
		if known := []results.State{"", results.Done, results.Unfinished, results.Failed}; !slices.Contains(known,
			results.State(state)) {
			return cli.Usagef("--state %q: expected done, unfinished or failed", state)
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
		if len(runs) == 0 {
			fmt.Println("no runs")
			return nil
		}
		text, err := runTable(runs, metric)
		fmt.Print(text)
		return err
	}
	return c
}

// runTable returns a table with a row for each run.
func runTable(runs []foundRun, metric string) (string, error) {
	if metric == "" {
		metric = "last"
	}
	m, err := results.ParseMetric(metric)
	if err != nil {
		return "", cli.Usagef("--metric: %w", err)
	}
	rows := [][]string{{"run", "method", "state", "tags", "seed", "rounds", headOf(m, m)}}
	for _, r := range runs {
		rounds := strconv.Itoa(len(r.Rounds))
		if r.State != results.Done && r.Planned > 0 {
			rounds += " of " + strconv.Itoa(r.Planned)
		}
		rows = append(rows, []string{folderSeen(r.Dir), r.Method, string(r.State), strings.Join(r.Tags, ","),
			strconv.FormatUint(r.Seed, 10), rounds, valueOf(m, r.Run)})
	}
	return tables.PlainText(rows, 4), nil
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

func valueOf(m results.Metric, r *results.Run) string {
	v, ok := m.Value(r)
	if !ok {
		return missing
	}
	return strconv.FormatFloat(m.Factor()*v, 'f', 2, 64)
}

func runsCompare() *cobra.Command {
	var names []string
	c := &cobra.Command{Use: "compare DIR DIR... [--metrics NAME,...]", Args: cli.AtLeast(2),
		Short: "compare metrics of runs, a column for each"}
	c.Flags().StringSliceVar(&names, "metrics", nil, "metrics to show: "+strings.Join(metrics.Names(), ", "))
	c.RunE = func(_ *cobra.Command, dirs []string) error {
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}
		var groups []*results.Group
		head := []string{"metric"}
		for _, r := range runs {
			groups, head = append(groups, r.group), append(head, folderSeen(r.Dir))
		}
		if names == nil {
			names = results.MainMetrics(results.DefaultMetric(groups), groups)
		}
		rows := [][]string{head}
		var first results.Metric
		for i, name := range names {
			m, err := results.ParseMetric(name)
			if err != nil {
				return cli.Usagef("--metrics: %w", err)
			}
			if i == 0 {
				first = m
			}
			row := []string{headOf(m, first)}
			for _, r := range runs {
				row = append(row, valueOf(m, r.Run))
			}
			if slices.ContainsFunc(row[1:], func(v string) bool { return v != missing }) {
				rows = append(rows, row)
			}
		}
		fmt.Print(tables.PlainText(rows, 1))
		return nil
	}
	return c
}

func runsDiff() *cobra.Command {
	return &cobra.Command{Use: "diff DIR DIR...", Args: cli.AtLeast(2),
		Short: "show the settings that differ between runs, a column for each",
		RunE: func(_ *cobra.Command, dirs []string) error {
			runs, err := findRuns(dirs)
			if err != nil {
				return err
			}
			var configs []string
			rows := [][]string{{"setting"}}
			for _, r := range runs {
				configs, rows[0] = append(configs, r.Config), append(rows[0], folderSeen(r.Dir))
			}
			keys, values, _ := page.ConfigDifferences(configs)
			if len(keys) == 0 {
				fmt.Printf("the configurations of the %d runs do not differ\n", len(runs))
				return nil
			}
			for i, key := range keys {
				row := []string{key}
				for _, of := range values {
					text := missing
					if of[i] != nil {
						text = *of[i]
					}
					row = append(row, text)
				}
				rows = append(rows, row)
			}
			fmt.Print(tables.PlainText(rows, len(rows[0])))
			return nil
		}}
}

func runsTag() *cobra.Command {
	var add, remove []string
	c := &cobra.Command{Use: "tag DIR... --add WORD,... [--remove WORD,...]", Args: cli.AtLeast(1),
		Short: "add or remove tags of runs, by which list and ui filter"}
	c.Flags().StringSliceVar(&add, "add", nil, "tags to add")
	c.Flags().StringSliceVar(&remove, "remove", nil, "tags to remove")
	c.RunE = func(_ *cobra.Command, dirs []string) error {
		if len(add)+len(remove) == 0 {
			return cli.Usagef("tag: give tags with --add or --remove")
		}
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if err := r.Tag(add, remove); err != nil {
				return cli.Usage(err)
			}
			fmt.Printf("%s: %s\n", folderSeen(r.Dir), strings.Join(r.Tags, ", "))
		}
		return nil
	}
	return c
}

func runsRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{Use: "rm DIR... [--yes]", Args: cli.AtLeast(1),
		Short: "remove run folders; without --yes, only list them"}
	c.Flags().BoolVar(&yes, "yes", false, "remove them")
	c.RunE = func(_ *cobra.Command, dirs []string) error {
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}
		what, all := "would remove", []string{}
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
		for _, dir := range all {
			fmt.Println(what, folderSeen(dir))
		}
		if !yes {
			fmt.Printf("nothing was removed; --yes removes %s with all files in them\n",
				experiment.CountInWords(len(runs), "run folder"))
		}
		return nil
	}
	return c
}
