package published

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"promptfed/models/bundle"
	"promptfed/models/hub"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/numerics"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/runfolder"
)

// result is the content of the file that can be sent in.
type result struct {
	Version   int                    `json:"version"`
	Smoke     bool                   `json:"smoke"`
	Set       []string               `json:"set"`     // keys that differ from the tables
	Weights   string                 `json:"weights"` // whether they are the published ones, in words
	Programs  []program              `json:"programs"`
	Backbones []weights              `json:"backbones"`
	Data      []images               `json:"data"`
	Numerics  []numerics.Fingerprint `json:"numerics"` // of all runs
	Tables    []published            `json:"tables"`
}

type program struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

type weights struct {
	Name     string `json:"name"`
	Digest   string `json:"digest"`   // SHA-256 of all that features and prompts depend on
	Source   string `json:"source"`   // "" for an unknown checkpoint
	Revision string `json:"revision"` // commit, or SHA-256 of the archive
}

type images struct {
	Set    string         `json:"set"`
	Digest string         `json:"digest"`
	Images map[string]int `json:"images"` // by split
}

// published is a table with published numbers.
type published struct {
	Table       string       `json:"table"`
	Cells       []cell       `json:"cells"`
	Experiments []experiment `json:"experiments"`
}

// cell is a number in the table's unit; null where it is unknown.
type cell struct {
	Labels     map[string]string `json:"labels"`
	Evaluation string            `json:"evaluation,omitempty"`
	Unit       string            `json:"unit"`
	Published  *float64          `json:"published"`
	Std        *float64          `json:"published_std"`
	Ours       *float64          `json:"ours"`
	OursStd    *float64          `json:"ours_std"` // sample deviation over seeds
	Seeds      int               `json:"seeds"`
	Planned    int               `json:"planned_seeds"`
	Difference *float64          `json:"difference"` // ours - published, of the same evaluation and form
}

// experiment is the identity of the runs of a cell.
type experiment struct {
	Labels      map[string]string `json:"labels"`
	Fingerprint string            `json:"fingerprint"`
}

// write writes the file about the sweeps in dirs, and prints its tables.
func (s *stock) write(w io.Writer, dirs []string, ran []table) error {
	made, err := report.New(context.Background(), dirs, s.out, report.Options{})
	if err != nil {
		return err
	}

	out := result{Version: 1, Smoke: s.smoke, Set: s.set}
	if out.Backbones, out.Weights, err = s.weights(ran); err != nil {
		return err
	}

	if err := out.runs(made.Groups); err != nil {
		return err
	}

	for i, t := range made.Tables() {
		published := published{Table: t.Title}
		for _, row := range t.Rows {
			for _, c := range row.Cells {
				if n := c.Stat.N(); n > 0 && !c.Absent {
					published.Cells = append(published.Cells, cellOf(c))
				}
			}
		}

		for _, g := range made.Content().Groups {
			if i < len(made.Plans) && g.Sweep == made.Plans[i].Sweep() {
				published.Experiments = append(published.Experiments, experiment{g.Labels, g.Experiment})
			}
		}

		out.Tables = append(out.Tables, published)
		published.print(w)
	}

	path := filepath.Join(s.out, resultFile)
	fmt.Fprintf(w, "\n%s\n%s holds these numbers and the fingerprint of the runs (docs/reproduced)\n", out.Weights,
		path)
	return atomicfile.Write(path, atomicfile.JSON(out, " "))
}

func cellOf(c tables.Cell) cell {
	cell := cell{Labels: c.Labels, Evaluation: c.View, Unit: c.Unit, Ours: rounded(c.Mean()), OursStd: rounded(c.Std()),
		Seeds: c.Stat.N(), Planned: c.Planned}
	if p := c.Paper; p != nil {
		cell.Published = rounded(p.Mean)
		if p.HasStd {
			cell.Std = rounded(p.Std)
		}
		if p.Comparable {
			cell.Difference = rounded(c.Mean() - p.Mean)
		}
	}

	return cell
}

// rounded returns a number with four decimals; nil for one that is undefined.
func rounded(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	v = math.Round(v*1e4) / 1e4
	return &v
}

// weights describes the backbones of the tables that ran. Weights are published ones if promptfed pull fetched them,
// which compares their sums.
func (s *stock) weights(ran []table) (all []weights, words string, err error) {
	used := map[string]string{} // folders of backbones, runtime.models, by their names
	for _, t := range ran {
		if t.sweep != nil {
			for _, c := range t.sweep.Cells {
				for _, name := range c.Config.Backbones {
					used[name] = c.Config.Runtime.Models
				}
			}
		}
	}

	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(used)) {
		model, err := bundle.Find(name, used[name])
		if err != nil {
			return nil, "", err
		}
		from := model.Origin
		if !slices.ContainsFunc(towers[name].pull, func(pull string) bool {
			m, err := hub.Parse(pull)
			return err == nil && from.Source == cmp.Or(m.Repository, pull)
		}) {
			unknown = append(unknown, name)
		}
		all = append(all, weights{name, model.Digest(), from.Source, from.Revision})
	}

	if len(unknown) > 0 {
		return all, "not the published weights: the checkpoint of " + strings.Join(unknown, ", ") + " is unknown", nil
	}

	return all, "published weights", nil
}

// runs adds programs, numerics and data of finished runs.
func (r *result) runs(groups []*results.Group) error {
	for run := range results.DoneRuns(groups) {
		provenance, err := runfolder.ReadProvenance(run.Dir)
		if err != nil {
			return err
		}

		if d := provenance.Data; d != nil {
			if !slices.ContainsFunc(r.Data, func(i images) bool { return i.Set == d.Set && i.Digest == d.Digest }) {
				r.Data = append(r.Data, images{d.Set, d.Digest, d.Images})
			}
		}

		for _, c := range provenance.Calls {
			if by := (program{c.Version, c.Commit}); !slices.Contains(r.Programs, by) {
				r.Programs = append(r.Programs, by)
			}
			if c.Numerics != nil && !slices.Contains(r.Numerics, *c.Numerics) {
				r.Numerics = append(r.Numerics, *c.Numerics)
			}
		}
	}

	return nil
}

// print prints the cells of a table that have a published number.
func (p published) print(w io.Writer) {
	writer := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(writer, "\n%s\n", p.Table)
	fmt.Fprintln(writer, "cell\tevaluation\tpublished\tours\tdifference\tseeds")
	for _, cell := range p.Cells {
		if cell.Published == nil {
			continue
		}
		var labels []string
		for _, axis := range slices.Sorted(maps.Keys(cell.Labels)) {
			if axis != tables.EvaluationAxis {
				labels = append(labels, cell.Labels[axis])
			}
		}
		fmt.Fprintf(writer, "%s\t%s\t%s\t%s\t%s\t%d of %d\n", strings.Join(labels, ", "), cell.Evaluation,
			text(cell.Published), text(cell.Ours), text(cell.Difference), cell.Seeds, cell.Planned)
	}

	writer.Flush()
}

func text(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *v)
}
