package page

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Limits on the numbers in one page. A hundred runs of a hundred rounds with a hundred clients stay under 15 MB.
const (
	maxCurveNumbers  = 600_000   // over all runs and metrics; longer curves are thinned
	maxClientNumbers = 1_200_000 // per-client curves; further runs have none
	maxCounts        = 800_000   // entries of partitions; further partitions are left out
	maxDetails       = 4 << 20   // bytes of logs, configurations, confusion matrices and terms; further runs have none
)

// block is the data for the page's script.
type block struct {
	Live    bool                `json:"live"` // a server sends changes
	Version string              `json:"version"`
	Colours map[string][]string `json:"colours"`
	Metrics []blockMetric       `json:"metrics"`
	Methods []string            `json:"methods"` // in the order of their colours
	Axes    []string            `json:"axes"`    // names of labels
	Keys    []string            `json:"keys"`    // settings that differ between configurations
	Same    [][2]string         `json:"same"`    // settings with equal values in all configurations
	Runs    []blockRun          `json:"runs"`
	Parts   []blockPart         `json:"parts"`
}

type blockMetric struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
}

// blockCurve refers to a metric and to a list of rounds of its run by their indices.
type blockCurve struct {
	Metric int     `json:"m"`
	X      int     `json:"x"`
	Y      numbers `json:"y"`
}

type blockRun struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Group string `json:"group"`
	// Experiment is equal exactly for runs that are averaged as seeds.
	Experiment string            `json:"experiment"`
	Method     string            `json:"method"`
	Sweep      string            `json:"sweep"`
	Seed       int64             `json:"seed"`
	State      string            `json:"state"`
	Why        string            `json:"why"`
	Planned    int               `json:"planned"`
	Tags       []string          `json:"tags"`
	Labels     map[string]string `json:"labels"`
	Settings   []*string         `json:"settings"` // values of Keys; null for a missing key
	X          []rounds          `json:"x"`
	Curves     []blockCurve      `json:"curves"`
	Clients    *blockClients     `json:"clients,omitempty"`
	Part       int               `json:"part"` // -1 if unknown
	Details    *details          `json:"details,omitempty"`
}

type blockClients struct {
	Metric int       `json:"m"`
	X      int       `json:"x"`
	Y      []numbers `json:"y"` // [client][round]
}

// blockPart is a partition. Runs with the same distribution of examples share one.
type blockPart struct {
	Classes []string      `json:"classes"`
	Clients []blockClient `json:"clients"`
}

type blockClient struct {
	Backbone string  `json:"b"`
	Domain   string  `json:"d"`
	Counts   [][]int `json:"n"` // train, val, test: pairs of class and count for non-empty classes; null if unknown
}

// details is the page's data about a single run.
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

// size returns the approximate size of the details in bytes.
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

// rounds is a list of rounds. A list with even steps is encoded as its first round, its last round and the step.
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

// axesOf returns the names of the runs' labels in the order of their first appearance.
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
