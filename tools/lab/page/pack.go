package page

import (
	"encoding/json"
	"fmt"
	"slices"

	"promptfed/tools/lab/figures"
)

// builder collects the data that runs share, and counts the data that does not fit into the page.
type builder struct {
	block
	metric, parts         map[string]int
	clientNumbers, counts int
	details               int // bytes
	stride                int
	without               struct{ curves, parts, details int } // numbers of runs whose data does not fit into the page
	left                  []string                             // the same in sentences
	differs               map[string]bool                      // by setting
}

// newBlock packs the runs in the order of the report. A live page fetches details separately.
func newBlock(r Report) (block, []string, error) {
	b := &builder{metric: map[string]int{}, parts: map[string]int{}, stride: 1, differs: map[string]bool{}}
	b.Live, b.Version, b.Methods, b.Axes = r.Live, r.Version, methodsOf(r), axesOf(r.Runs)
	b.Colours = map[string][]string{"light": figures.LineColours[0], "dark": figures.LineColours[1]}
	for i, m := range r.Metrics {
		if _, twice := b.metric[m.Name]; twice {
			return block{}, nil, fmt.Errorf("metric %q is listed twice in the report", m.Name)
		}
		b.metric[m.Name] = i
		b.Metrics = append(b.Metrics, blockMetric{m.Name, or(m.Title, m.Name), m.Unit})
	}
	if total := curveNumbers(r.Runs); total > maxCurveNumbers {
		b.stride = (total + maxCurveNumbers - 1) / maxCurveNumbers
		b.leave("The curves show every %d%s round: all of them would make the page too large.", b.stride,
			ordinal(b.stride))
	}
	var values [][]*string
	b.Keys, values, b.Same = ConfigDifferences(r.Runs)
	for _, k := range b.Keys {
		b.differs[k] = true
	}
	ids := map[string]bool{}
	for i, run := range r.Runs {
		id := or(run.ID, run.Name)
		if ids[id] {
			return block{}, nil, fmt.Errorf("two runs of the report are called %s", id)
		}
		ids[id] = true
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
			b.leave("The %s of %d of %d runs are left out, to keep the page small.", w.what, w.n, len(r.Runs))
		}
	}
	return b.block, b.left, nil
}

func (b *builder) leave(format string, a ...any) { b.left = append(b.left, fmt.Sprintf(format, a...)) }

// methodsOf returns the methods in the report's order, then other methods of its runs.
func methodsOf(r Report) []string {
	out := append([]string{}, r.Methods...)
	for _, run := range r.Runs {
		if m := run.method(); m != "" && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// method returns the method that determines the run's colour.
func (r Run) method() string {
	for _, l := range r.Labels {
		if l.Name == "method" {
			return l.Value
		}
	}
	return r.Method
}

func (b *builder) run(run Run, settings []*string) error {
	id := or(run.ID, run.Name)
	packed := blockRun{ID: id, Name: run.Name, Group: or(run.Group, run.Name),
		Experiment: or(run.Experiment, id), Method: run.method(),
		Sweep: run.Sweep, Seed: run.Seed, State: run.State, Why: run.Why, Planned: run.Planned,
		Tags: append([]string{}, run.Tags...), Labels: map[string]string{}, Settings: settings}
	for _, l := range run.Labels {
		packed.Labels[l.Name] = l.Value
	}
	for _, c := range run.Curves {
		m, err := b.metricOf(c.Metric)
		if err != nil {
			return err
		}
		if len(c.Rounds) != len(c.Values) || !slices.IsSorted(c.Rounds) {
			return fmt.Errorf("the curve of %s has %d values for %d rounds, or its rounds do not rise", c.Metric,
				len(c.Values), len(c.Rounds))
		}
		packed.Curves = append(packed.Curves, blockCurve{m, b.x(&packed, c.Rounds), every(c.Values, b.stride)})
	}
	err := b.clients(&packed, run.PerClient)
	if err != nil {
		return err
	}
	if packed.Part, err = b.part(run); err != nil {
		return err
	}
	if !b.Live {
		packed.Details = newDetails(run, b.differs)
		if b.details += packed.Details.size(); b.details > maxDetails {
			packed.Details = nil
			b.without.details++
		}
	}
	b.Runs = append(b.Runs, packed)
	return nil
}

// newDetails packs the page's data about a single run.
func newDetails(run Run, differs map[string]bool) *details {
	d := &details{Facts: run.Facts, Config: configLines(run.Config, differs), Log: run.Log, Confusion: run.Confusion}
	for _, t := range run.Terms {
		d.Terms = append(d.Terms, blockTerm{t.Name, t.Rounds, t.Value, t.Norm, t.Relative})
	}
	return d
}

func (b *builder) metricOf(name string) (int, error) {
	m, ok := b.metric[name]
	if !ok {
		return 0, fmt.Errorf("a curve is of %q, which is none of the report's metrics", name)
	}
	return m, nil
}

func curveNumbers(runs []Run) int {
	n := 0
	for _, r := range runs {
		for _, c := range r.Curves {
			n += len(c.Values)
		}
	}
	return n
}

// x returns the index of a list of rounds among the lists of a run. All lists are thinned out equally.
func (b *builder) x(run *blockRun, list []int) int {
	kept := rounds(every(list, b.stride))
	for i, x := range run.X {
		if slices.Equal(x, kept) {
			return i
		}
	}
	run.X = append(run.X, kept)
	return len(run.X) - 1
}

// clients packs the curves of clients, unless they are missing or the page is full.
func (b *builder) clients(run *blockRun, pc *ClientCurves) error {
	if pc == nil || len(pc.Values) == 0 {
		return nil
	}
	m, err := b.metricOf(pc.Metric)
	if err != nil {
		return err
	}
	if len(pc.Rounds) != len(pc.Values) {
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
			sparse := pairs(counts)
			entries += len(sparse)
			bc.Counts = append(bc.Counts, sparse)
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

// pairs returns class and count of every non-empty class.
func pairs(counts []int) []int {
	if counts == nil {
		return nil
	}
	out := []int{}
	for c, n := range counts {
		if n != 0 {
			out = append(out, c, n)
		}
	}
	return out
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

func ordinal(n int) string {
	if n%100/10 != 1 {
		switch n % 10 {
		case 1:
			return "st"
		case 2:
			return "nd"
		case 3:
			return "rd"
		}
	}
	return "th"
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
