package results

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
)

const maxConfusion = 64 << 20

// Confusion reads the run's confusion matrix; nil without an error if the file does not exist.
func (r *Run) Confusion() (*record.Confusion, error) {
	path := filepath.Join(r.Dir, record.ConfusionFile)
	text, err := readSmall(path, maxConfusion)
	if text == nil || err != nil {
		return nil, err
	}
	c := &record.Confusion{}
	err = json.Unmarshal(text, c)
	for _, m := range []*metrics.Matrix{c.Global, c.Personal} {
		if m == nil || err != nil {
			continue
		}
		for _, k := range m.Counts {
			if n := int64(len(c.Classes)); k[0] < 0 || k[0] >= n || k[1] < 0 || k[1] >= n || k[2] < 0 {
				err = fmt.Errorf("it counts %d examples of class %d taken for class %d, of %d classes", k[2], k[0],
					k[1], n)
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
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
