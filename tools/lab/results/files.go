package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/runfolder"
)

// Size limits of files, in bytes.
const (
	maxConfig    = 4 << 20
	maxTags      = 64 << 10
	maxError     = 64 << 10
	maxSummary   = 64 << 20
	maxConfusion = 64 << 20
	maxClients   = 256 << 20
)

// readSmall reads a file of at most limit bytes; nil without an error if it does not exist.
func readSmall(path string, limit int64) ([]byte, error) {
	b, err := atomicfile.ReadAtMost(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// readJSON reads and checks a JSON file of a run folder; nil without an error if it does not exist.
func readJSON[T any](dir, name string, limit int64, check func(*T) error) (*T, error) {
	path := filepath.Join(dir, name)
	text, err := readSmall(path, limit)
	if text == nil || err != nil {
		return nil, err
	}

	out := new(T)
	if err = json.Unmarshal(text, out); err == nil && check != nil {
		err = check(out)
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return out, nil
}

// Clients reads the run's clients.json. It returns nil without an error for a run that was stopped before it wrote the
// file. The file is read on demand, because the clients of all runs of a large sweep would not fit into memory.
func (r *Run) Clients() (*experiment.Clients, error) {
	return readJSON(r.Dir, runfolder.ClientsFile, maxClients, func(c *experiment.Clients) error {
		for i, k := range c.Clients {
			for _, counts := range [][]int{k.Train, k.Val, k.Test} {
				if len(counts) > 0 && len(counts) != len(c.Classes) {
					return fmt.Errorf("client %d has counts of %d classes, the run has %d", i, len(counts),
						len(c.Classes))
				}
				for _, n := range counts {
					if n < 0 {
						return fmt.Errorf("client %d has %d examples of a class", i, n)
					}
				}
			}
		}
		return nil
	})
}

// Confusion reads the run's confusion matrix; nil without an error if the file does not exist.
func (r *Run) Confusion() (*record.Confusion, error) {
	return readJSON(r.Dir, record.ConfusionFile, maxConfusion, func(c *record.Confusion) error {
		for _, m := range []*metrics.Matrix{c.Global, c.Personal} {
			if m == nil {
				continue
			}
			for _, k := range m.Counts {
				if n := int64(len(c.Classes)); k[0] < 0 || k[0] >= n || k[1] < 0 || k[1] >= n || k[2] < 0 {
					return fmt.Errorf("it counts %d examples of class %d taken for class %d, of %d classes", k[2],
						k[0], k[1], n)
				}
			}
		}
		return nil
	})
}

// ConfusionRows returns the rows of a confusion matrix as shares of their class; a row without examples is nil.
func ConfusionRows(m *metrics.Matrix, classes int) [][]float64 {
	out, sum := make([][]float64, classes), make([]float64, classes)
	for _, k := range m.Counts {
		if out[k[0]] == nil {
			out[k[0]] = make([]float64, classes)
		}
		out[k[0]][k[1]] += float64(k[2])
		sum[k[0]] += float64(k[2])
	}

	for i, row := range out {
		for j := range row {
			row[j] /= sum[i]
		}
	}

	return out
}

// call is the part of a runfolder.Call that reports need.
type call struct {
	Commit   string         `json:"commit"`
	Numerics map[string]any `json:"numerics"`
	Seconds  *float64       `json:"seconds"`
	Error    string         `json:"error"`
}

func readCalls(dir string) ([]call, error) {
	p, err := readJSON[struct{ Calls []call }](dir, runfolder.ProvenanceFile, runfolder.MaxProvenance, nil)
	if p == nil || err != nil {
		return nil, err
	}
	return p.Calls, nil
}

// executionOf returns the circumstances of a run: the program's commit, and the machine (numerics.Fingerprint). A
// resumed run may have several of each.
func executionOf(calls []call) map[string]string {
	values := map[string][]string{}
	add := func(what, value string) {
		if value != "" {
			values[what] = AppendMissing(values[what], value)
		}
	}

	for _, c := range calls {
		add("commit", c.Commit)
		for what, value := range c.Numerics {
			add(what, fmt.Sprint(value))
		}
	}

	out := map[string]string{}
	for what, list := range values {
		out[what] = strings.Join(list, " and ")
	}

	return out
}
