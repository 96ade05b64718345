package page

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Limits on what one page carries, in numbers. A hundred runs of a hundred rounds with a hundred clients stay under 15
// MB.
const (
	maxCurveNumbers  = 600_000   // over all runs and metrics; longer curves are thinned
	maxClientNumbers = 1_200_000 // per-client curves; runs beyond have none
	maxCounts        = 800_000   // entries of partitions; partitions beyond are left out
	maxDetails       = 4 << 20   // bytes of logs, configurations, confusion matrices and terms; runs beyond have none
)

// block is the data that the page's script draws from.
type block struct {
	Live    bool                `json:"live"` // a server tells what changes
	Version string              `json:"version"`
	Colours map[string][]string `json:"colours"`
	Metrics []blockMetric       `json:"metrics"`
	Methods []string            `json:"methods"` // in the order of their colours
	Axes    []string            `json:"axes"`    // names of labels
	Keys    []string            `json:"keys"`    // settings in which configurations differ
	Same    [][2]string         `json:"same"`    // settings that all configurations share, with their values
	Runs    []blockRun          `json:"runs"`
	Parts   []blockPart         `json:"parts"`
}

type blockMetric struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
}

// blockCurve refers to a metric and to a list of rounds of its run by their places.
type blockCurve struct {
	Metric int     `json:"m"`
	X      int     `json:"x"`
	Y      numbers `json:"y"`
}

type blockRun struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Group string `json:"group"`
	// Experiment is equal for runs that are averaged as seeds, and for no others.
	Experiment string            `json:"experiment"`
	Method     string            `json:"method"`
	Sweep      string            `json:"sweep"`
	Seed       int64             `json:"seed"`
	State      string            `json:"state"`
	Why        string            `json:"why"`
	Planned    int               `json:"planned"`
	Tags       []string          `json:"tags"`
	Labels     map[string]string `json:"labels"`
	Settings   []*string         `json:"settings"` // values of Keys; null where the configuration has none
	X          []rounds          `json:"x"`
	Curves     []blockCurve      `json:"curves"`
	Clients    *blockClients     `json:"clients,omitempty"`
	Part       int               `json:"part"` // -1 where unknown
	Details    *details          `json:"details,omitempty"`
}

type blockClients struct {
	Metric int       `json:"m"`
	X      int       `json:"x"`
	Y      []numbers `json:"y"` // [client][round]
}

// blockPart is a partition; runs that hand out the same examples share one.
type blockPart struct {
	Classes []string      `json:"classes"`
	Clients []blockClient `json:"clients"`
}

type blockClient struct {
	Backbone string  `json:"b"`
	Domain   string  `json:"d"`
	Counts   [][]int `json:"n"` // train, val, test: class, count, class, count of what is not empty; null where unknown
}

// details are what the page shows of one run alone.
type details struct {
	Facts     []Pair       `json:"facts,omitempty"`
	Config    []configLine `json:"config"`
	Log       []string     `json:"log"`
	Confusion *Confusion   `json:"confusion"`
	Terms     []blockTerm  `json:"terms"`
}

type blockTerm struct {
	Name     string  `json:"name"`
	Rounds   []int   `json:"x"`
	Value    numbers `json:"value"`
	Norm     numbers `json:"norm"`
	Relative numbers `json:"relative"`
}

// size is about how many bytes the details take.
func (d *details) size() int {
	n := 0
	for _, l := range d.Config {
		n += len(l.Text) + 8
	}
	for _, l := range d.Log {
		n += len(l) + 4
	}
	if c := d.Confusion; c != nil {
		n += 12 * (len(c.Global) + len(c.Personal))
		for _, name := range c.Classes {
			n += len(name) + 4
		}
	}
	for _, t := range d.Terms {
		n += 24 * len(t.Rounds)
	}
	return n
}

// rounds is a list of rounds; one with even steps is written as its first, its last and the step.
type rounds []int

// MarshalJSON writes {"from", "to", "step"}, or the list.
func (r rounds) MarshalJSON() ([]byte, error) {
	if n := len(r); n > 2 {
		step := r[1] - r[0]
		even := step > 0
		for i := 1; even && i < n; i++ {
			even = r[i]-r[i-1] == step
		}
		if even {
			return fmt.Appendf(nil, `{"from":%d,"to":%d,"step":%d}`, r[0], r[n-1], step), nil
		}
	}
	return json.Marshal(append([]int{}, r...))
}

// axesOf lists the names of the runs' labels in the order in which they first appear.
func axesOf(runs []Run) []string {
	out := []string{}
	for _, r := range runs {
		for _, l := range r.Labels {
			if !slices.Contains(out, l.Name) {
				out = append(out, l.Name)
			}
		}
	}
	return out
}
