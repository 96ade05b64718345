package page

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
)

// builder collects what runs share: lists of rounds and partitions.
type builder struct {
	block
	metric, rounds, parts map[string]int
	clientNumbers, counts int
	stride                int
	without               struct{ curves, parts int } // runs that the page has no room for
	left                  []string                    // the same in sentences
}

// newBlock packs the runs. The order of everything is that of the report.
func newBlock(r Report) (block, []string, error) {
	b := &builder{metric: map[string]int{}, rounds: map[string]int{}, parts: map[string]int{}, stride: 1}
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
	groups, of := groupsOf(r.Runs)
	for i, run := range r.Runs {
		if err := b.run(run, of[i]); err != nil {
			return block{}, nil, fmt.Errorf("run %s: %w", run.Name, err)
		}
	}
	for _, g := range groups {
		b.Groups = append(b.Groups, blockGroup{g.name, g.runs, b.means(r, g.runs)})
	}
	if n := b.without.curves; n > 0 {
		b.leave("The lines of single clients are left out for %d of %d runs, to keep the page small.", n, len(r.Runs))
	}
	if n := b.without.parts; n > 0 {
		b.leave("The partitions of %d of %d runs are left out, to keep the page small.", n, len(r.Runs))
	}
	return b.block, b.left, nil
}

func (b *builder) leave(format string, a ...any) { b.left = append(b.left, fmt.Sprintf(format, a...)) }

func (b *builder) run(run Run, group int) error {
	packed := blockRun{Name: run.Name, Group: group}
	for _, c := range run.Curves {
		m, err := b.metricOf(c.Metric)
		if err != nil {
			return err
		}
		if len(c.Rounds) != len(c.Values) || !slices.IsSorted(c.Rounds) {
			return fmt.Errorf("the curve of %s has %d values for %d rounds, or its rounds do not rise", c.Metric,
				len(c.Values), len(c.Rounds))
		}
		packed.Curves = append(packed.Curves, blockCurve{Metric: m, X: b.x(c.Rounds), Y: every(c.Values, b.stride)})
	}
	var err error
	if packed.Clients, err = b.clients(run.PerClient); err != nil {
		return err
	}
	if packed.Part, err = b.part(run); err != nil {
		return err
	}
	b.Runs = append(b.Runs, packed)
	return nil
}

// means averages every metric over the runs of a group that have it.
func (b *builder) means(r Report, runs []int) []blockCurve {
	var out []blockCurve
	for m, metric := range r.Metrics {
		var curves []Curve
		for _, i := range runs {
			for _, c := range r.Runs[i].Curves {
				if c.Metric == metric.Name {
					curves = append(curves, c)
				}
			}
		}
		if rounds, mean, std := average(curves, r.Sample); len(rounds) > 0 {
			out = append(out, blockCurve{m, b.x(rounds), every(mean, b.stride), every(std, b.stride)})
		}
	}
	return out
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

// x gives the place of a list of rounds, which is thinned as all are.
func (b *builder) x(rounds []int) int {
	thin := every(rounds, b.stride)
	key := make([]byte, 0, 2*len(thin))
	for _, round := range thin {
		key = binary.AppendVarint(key, int64(round))
	}
	if at, ok := b.rounds[string(key)]; ok {
		return at
	}
	b.rounds[string(key)] = len(b.X)
	b.X = append(b.X, thin)
	return len(b.X) - 1
}

// clients packs the clients' curves; nil where there are none or the page is full.
func (b *builder) clients(pc *ClientCurves) (*blockClients, error) {
	if pc == nil || len(pc.Values) == 0 {
		return nil, nil
	}
	m, err := b.metricOf(pc.Metric)
	if err != nil {
		return nil, err
	}
	if len(pc.Rounds) != len(pc.Values) {
		return nil, fmt.Errorf("the clients' curves have %d rows of values for %d rounds", len(pc.Values),
			len(pc.Rounds))
	}
	n := len(pc.Values) * len(pc.Values[0])
	if b.clientNumbers+n > maxClientNumbers {
		b.without.curves++
		return nil, nil
	}
	b.clientNumbers += n
	columns := make([]numbers, len(pc.Values[0]))
	for _, row := range every(pc.Values, b.stride) {
		if len(row) != len(columns) {
			return nil, fmt.Errorf("the clients' curves have %d clients in one round and %d in another", len(columns),
				len(row))
		}
		for k, v := range row {
			columns[k] = append(columns[k], v)
		}
	}
	return &blockClients{m, b.x(pc.Rounds), columns}, nil
}

// part gives the place of a run's partition, -1 where it has none or the page is full.
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

// pairs lists class and count of every class that has any.
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

// every keeps each stride-th element, and the last.
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
