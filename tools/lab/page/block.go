package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
)

// Limits on the numbers in one page. A hundred runs of a hundred rounds with a hundred clients stay under 15 MB.
const (
	maxCurveNumbers  = 600_000   // over all runs and metrics; longer curves are thinned
	maxClientNumbers = 1_200_000 // per-client curves; further runs have none
	maxCounts        = 800_000   // entries of partitions; further partitions are left out
	maxDetails       = 4 << 20   // bytes of logs, configurations, confusion matrices and terms; further runs have none
)

// mapSteps is the number of colours of the map of shares and counts.
const mapSteps = 64

// block is the data for the page's script.
type block struct {
	Live    bool                `json:"live"` // a server sends changes
	Version string              `json:"version"`
	Colours map[string][]string `json:"colours"`
	Metrics list[Metric]        `json:"metrics"`
	Methods list[string]        `json:"methods"` // in the order of their colours
	Axes    list[string]        `json:"axes"`    // names of labels
	Keys    list[string]        `json:"keys"`    // settings that differ between configurations
	Same    list[[2]string]     `json:"same"`    // settings with equal values in all configurations
	Runs    list[blockRun]      `json:"runs"`
	Parts   list[blockPart]     `json:"parts"`
}

// blockRun is a run with its packed numbers.
type blockRun struct {
	Run
	Settings list[*string]    `json:"settings"` // values of Keys; null for a missing key
	X        list[[]int]      `json:"x"`        // lists of rounds
	Curves   list[blockCurve] `json:"curves"`
	Clients  *blockClients    `json:"clients,omitempty"`
	Part     int              `json:"part"` // -1 if unknown
	Details  json.RawMessage  `json:"details,omitempty"`
}

// blockCurve refers to a metric and to a list of rounds of its run by their indices.
type blockCurve struct {
	Metric int     `json:"m"`
	X      int     `json:"x"`
	Y      numbers `json:"y"`
}

type blockClients struct {
	Metric int       `json:"m"`
	X      int       `json:"x"`
	Y      []numbers `json:"y"` // [client][round]
}

// blockPart is a partition. Runs with the same distribution of examples share one.
type blockPart struct {
	Classes list[string]      `json:"classes"`
	Clients list[blockClient] `json:"clients"`
}

type blockClient struct {
	Backbone string  `json:"b"`
	Domain   string  `json:"d"`
	Counts   [][]int `json:"n"` // train, val, test: pairs of class and count for non-empty classes; null if unknown
}

// details returns the page's data about a single run: its configuration with marks at differing settings, its log and
// what else it recorded.
func details(run Run, differs []string) (json.RawMessage, error) {
	return json.Marshal(struct {
		Facts     list[Pair]   `json:"facts"`
		Config    list[any]    `json:"config"`
		Log       list[string] `json:"log"`
		Confusion *Confusion   `json:"confusion"`
		Terms     list[Term]   `json:"terms"`
	}{run.Facts, results.MarkedLines(run.Config, differs), run.Log, run.Confusion, run.Terms})
}

// builder collects the data that runs share, and counts the data that does not fit into the page.
type builder struct {
	block
	parts                 map[string]int
	clientNumbers, counts int
	details               int // bytes
	stride                int
	without               struct{ curves, parts, details int } // numbers of runs whose data does not fit into the page
}

// newBlock packs the runs in the order of the report. A live page fetches details separately. left are sentences about
// what does not fit into the page.
func newBlock(r Report) (_ block, left []string, err error) {
	b := &builder{parts: map[string]int{}, stride: 1}
	b.Live, b.Version, b.Methods = r.Live, r.Version, slices.Clone(r.Methods)
	b.Colours = map[string][]string{"light": figures.LineColours[0], "dark": figures.LineColours[1],
		"groupsLight": figures.GroupColours[0], "groupsDark": figures.GroupColours[1],
		"map": figures.SequentialColours(mapSteps)}
	for _, m := range r.Metrics {
		if b.metric(m.Name) >= 0 {
			return block{}, nil, fmt.Errorf("metric %q is listed twice in the report", m.Name)
		}
		m.Title = cmp.Or(m.Title, m.Name)
		b.Metrics = append(b.Metrics, m)
	}
	total := 0
	for _, run := range r.Runs {
		for _, c := range run.Curves {
			total += len(c.Values)
		}
	}
	if total > maxCurveNumbers {
		b.stride = (total + maxCurveNumbers - 1) / maxCurveNumbers
		left = append(left, fmt.Sprintf("The curves show one round in %d: all of them would make the page too large.",
			b.stride))
	}
	var values [][]*string
	configs := make([]string, len(r.Runs))
	for i, run := range r.Runs {
		configs[i] = run.Config
	}
	b.Keys, values, b.Same = results.ConfigDifferences(configs)
	ids := map[string]bool{}
	for i, run := range r.Runs {
		run.ID = cmp.Or(run.ID, run.Name)
		run.Group, run.Experiment = cmp.Or(run.Group, run.Name), cmp.Or(run.Experiment, run.ID)
		if ids[run.ID] {
			return block{}, nil, fmt.Errorf("two runs of the report are called %s", run.ID)
		}
		ids[run.ID] = true
		if err := b.run(run, values[i]); err != nil {
			return block{}, nil, fmt.Errorf("run %s: %w", run.Name, err)
		}
	}
	for _, w := range []struct {
		n    int
		what string
	}{{b.without.curves, "lines of single clients"}, {b.without.parts, "partitions"},
		{b.without.details, "configurations, logs, confusion matrices and terms"}} {
		if w.n > 0 {
			left = append(left, fmt.Sprintf("The %s of %d of %d runs are left out, to keep the page small.", w.what,
				w.n, len(r.Runs)))
		}
	}
	return b.block, left, nil
}

// metric returns the index of a metric, or -1.
func (b *builder) metric(name string) int {
	return slices.IndexFunc(b.Metrics, func(m Metric) bool { return m.Name == name })
}

func (b *builder) run(run Run, settings []*string) (err error) {
	packed := blockRun{Run: run, Settings: settings}
	for _, l := range run.Labels {
		if l.Name == "method" { // it determines the run's colour
			packed.Method = l.Value
		}
		if !slices.Contains(b.Axes, l.Name) {
			b.Axes = append(b.Axes, l.Name)
		}
	}
	if m := packed.Method; m != "" && !slices.Contains(b.Methods, m) {
		b.Methods = append(b.Methods, m)
	}
	for _, c := range run.Curves {
		m := b.metric(c.Metric)
		switch {
		case m < 0:
			return fmt.Errorf("a curve is of %q, which is none of the report's metrics", c.Metric)
		case len(c.Rounds) != len(c.Values) || !slices.IsSorted(c.Rounds):
			return fmt.Errorf("the curve of %s has %d values for %d rounds, or its rounds do not rise", c.Metric,
				len(c.Values), len(c.Rounds))
		}
		packed.Curves = append(packed.Curves, blockCurve{m, b.x(&packed, c.Rounds), every(c.Values, b.stride)})
	}
	if err := b.clients(&packed, run.PerClient); err != nil {
		return err
	}
	if packed.Part, err = b.part(run); err != nil {
		return err
	}
	if !b.Live {
		if packed.Details, err = details(run, b.Keys); err != nil {
			return err
		}
		if b.details += len(packed.Details); b.details > maxDetails {
			packed.Details = nil
			b.without.details++
		}
	}
	b.Runs = append(b.Runs, packed)
	return nil
}

// x returns the index of a list of rounds among the lists of a run. All lists are thinned out equally.
func (b *builder) x(run *blockRun, list []int) int {
	kept := append([]int{}, every(list, b.stride)...)
	i := slices.IndexFunc(run.X, func(x []int) bool { return slices.Equal(x, kept) })
	if i < 0 {
		run.X, i = append(run.X, kept), len(run.X)
	}
	return i
}

// clients packs the curves of clients, unless they are missing or the page is full.
func (b *builder) clients(run *blockRun, pc *ClientCurves) error {
	if pc == nil || len(pc.Values) == 0 {
		return nil
	}
	m := b.metric(pc.Metric)
	switch {
	case m < 0:
		return fmt.Errorf("the clients' curves are of %q, which is none of the report's metrics", pc.Metric)
	case len(pc.Rounds) != len(pc.Values):
		return fmt.Errorf("the clients' curves have %d rows of values for %d rounds", len(pc.Values), len(pc.Rounds))
	}
	n := len(pc.Values) * len(pc.Values[0])
	if b.clientNumbers+n > maxClientNumbers {
		b.without.curves++
		return nil
	}
	b.clientNumbers += n
	columns := make([]numbers, len(pc.Values[0]))
	for _, row := range every(pc.Values, b.stride) {
		if len(row) != len(columns) {
			return fmt.Errorf("the clients' curves have %d clients in one round and %d in another", len(columns),
				len(row))
		}
		for k, v := range row {
			columns[k] = append(columns[k], v)
		}
	}
	run.Clients = &blockClients{m, b.x(run, pc.Rounds), columns}
	return nil
}

// part returns the index of a run's partition, or -1 without a partition or on a full page.
func (b *builder) part(run Run) (int, error) {
	if len(run.Clients) == 0 {
		return -1, nil
	}
	p := blockPart{Classes: run.Classes}
	entries := 0
	for k, c := range run.Clients {
		bc := blockClient{Backbone: c.Backbone, Domain: c.Domain}
		for _, counts := range [][]int{c.Train, c.Val, c.Test} {
			if len(counts) > len(run.Classes) {
				return 0, fmt.Errorf("client %d has counts of %d classes; the run has %d", k, len(counts),
					len(run.Classes))
			}
			var pairs []int
			if counts != nil {
				pairs = []int{}
			}
			for class, n := range counts {
				if n != 0 {
					pairs = append(pairs, class, n)
				}
			}
			entries += len(pairs)
			bc.Counts = append(bc.Counts, pairs)
		}
		p.Clients = append(p.Clients, bc)
	}
	key, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	if at, ok := b.parts[string(key)]; ok {
		return at, nil
	}
	if b.counts+entries > maxCounts {
		b.without.parts++
		return -1, nil
	}
	b.counts += entries
	b.parts[string(key)] = len(b.Parts)
	b.Parts = append(b.Parts, p)
	return len(b.Parts) - 1, nil
}

// every keeps each stride-th element and the last.
func every[T any](s []T, stride int) []T {
	if stride <= 1 {
		return s
	}
	var out []T
	for i := range s {
		if i%stride == 0 || i == len(s)-1 {
			out = append(out, s[i])
		}
	}
	return out
}
