package page

import (
	"encoding/json"
	"fmt"
	"slices"

	"promptfed/federation/experiment"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// Limits on the numbers in one page. A hundred runs of a hundred rounds with a hundred clients stay under 15 MB.
const (
	maxCurveNumbers  = 600_000   // over all runs and metrics; longer curves are thinned
	maxClientNumbers = 1_200_000 // per-client curves; further runs have none
	maxCounts        = 800_000   // numbers of examples; further runs have no clients
	maxDetails       = 4 << 20   // bytes; runs with more have none
)

// mapSteps is the number of colours of the map of shares and counts.
const mapSteps = 64

// block is the data for the page's script.
type block struct {
	Live    bool                      `json:"live"` // a server sends changes
	Version string                    `json:"version"`
	Colours map[string][]string       `json:"colours"`
	Metrics list[Metric]              `json:"metrics"`
	Methods list[string]              `json:"methods"` // in the order of their colours
	Axes    list[string]              `json:"axes"`    // names of labels
	Keys    list[string]              `json:"keys"`    // settings that differ between configurations
	Same    list[[2]string]           `json:"same"`    // settings with equal values in all configurations
	Runs    list[blockRun]            `json:"runs"`
	Parts   list[*experiment.Clients] `json:"parts"` // runs with the same clients share one
}

// blockRun is a run with what it shares with others.
type blockRun struct {
	Run
	Seed     uint64        `json:"seed,string"` // a number of the script is exact up to 2^53
	Settings list[*string] `json:"settings"`    // values of Keys; null for a missing key
	Part     int           `json:"part"`        // -1 if unknown
}

// list is a list of the page's data block: nil is written as [], because the script reads the length of every list.
type list[T any] []T

// MarshalJSON writes an array.
func (l list[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(l))
}

// newBlock packs the runs in the order of the report. left are sentences about what does not fit into the page.
func newBlock(report Report) (data block, left []string) {
	data = block{Live: report.Live, Version: report.Version, Metrics: report.Metrics, Methods: report.Methods,
		Colours: map[string][]string{"light": figures.LineColours[0], "dark": figures.LineColours[1],
			"groupsLight": figures.GroupColours[0], "groupsDark": figures.GroupColours[1],
			"map": figures.SequentialColours(mapSteps)}}

	stride, total := 1, 0
	configs := make([]string, len(report.Runs))
	for i, run := range report.Runs {
		configs[i] = run.Config
		for _, c := range run.Curves {
			total += len(c.Values)
		}
	}

	if total > maxCurveNumbers {
		stride = (total + maxCurveNumbers - 1) / maxCurveNumbers
		left = append(left, fmt.Sprintf("The curves show one round in %d: all of them would make the page too large.",
			stride))
	}

	var settings [][]*string
	data.Keys, settings, data.Same = results.ConfigDifferences(configs)
	lines := budget{what: "lines of single clients", left: maxClientNumbers}
	partitions := budget{what: "partitions", left: maxCounts}
	details := budget{what: "configurations, logs and other details", left: maxDetails}
	parts := map[string]int{}
	for i, run := range report.Runs {
		packed := blockRun{Run: run.thinned(stride), Seed: run.Seed, Settings: settings[i], Part: -1}
		if run.Labels == nil {
			packed.Labels = map[string]string{}
		}

		data.Axes = results.AppendMissing(data.Axes, results.SortedKeys(run.Labels)...)

		if c := run.PerClient; c != nil && !lines.takes(len(c.Values)*len(c.Rounds)) {
			packed.PerClient = nil
		}

		if !details.takes(len(run.Details)) {
			packed.Details = nil
		}

		if run.Clients != nil && len(run.Clients.Clients) > 0 {
			key, _ := json.Marshal(run.Clients) // texts and numbers
			n := 0
			for _, c := range run.Clients.Clients {
				n += len(c.Train) + len(c.Val) + len(c.Test)
			}

			if at, known := parts[string(key)]; known {
				packed.Part = at
			} else if partitions.takes(n) {
				packed.Part = len(data.Parts)
				parts[string(key)] = packed.Part
				data.Parts = append(data.Parts, run.Clients)
			}
		}

		data.Runs = append(data.Runs, packed)
	}

	for _, b := range []budget{lines, partitions, details} {
		if b.without > 0 {
			left = append(left, fmt.Sprintf("The %s of %d of %d runs are left out, to keep the page small.", b.what,
				b.without, len(report.Runs)))
		}
	}

	return data, left
}

// budget is the room for something of the runs, and the number of runs without it.
type budget struct {
	what          string
	left, without int
}

// takes reports whether n more fit.
func (b *budget) takes(n int) bool {
	if n > b.left {
		b.without++
		return false
	}
	b.left -= n
	return true
}

// thinned returns the run with each stride-th round of its curves, and the last.
func (r Run) thinned(stride int) Run {
	if stride == 1 {
		return r
	}

	r.Curves = slices.Clone(r.Curves)
	for i, c := range r.Curves {
		r.Curves[i].Rounds, r.Curves[i].Values = every(c.Rounds, stride), every(c.Values, stride)
	}

	if c := r.PerClient; c != nil {
		thin := ClientCurves{Metric: c.Metric, Rounds: every(c.Rounds, stride)}
		for _, y := range c.Values {
			thin.Values = append(thin.Values, every(y, stride))
		}
		r.PerClient = &thin
	}

	return r
}

// every keeps each stride-th element and the last.
func every[S ~[]T, T any](s S, stride int) (out S) {
	for i := range s {
		if i%stride == 0 || i == len(s)-1 {
			out = append(out, s[i])
		}
	}
	return out
}
