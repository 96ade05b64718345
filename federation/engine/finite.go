package engine

import (
	"fmt"

	"promptfed/runtime/tensor"
)

// calmer is what to do when training diverges.
const calmer = "lower train.lr or set train.clip_norm"

// finite refuses tensors that hold NaN or an infinity; what comes before the name.
func finite(what string, m tensor.Map) error {
	for _, name := range m.Names() {
		if i := m[name].Finite(); i >= 0 {
			return fmt.Errorf("%s%s holds %v at element %d; %s", what, name, m[name].Data[i], i, calmer)
		}
	}
	return nil
}

// checkBatch refuses examples that are no numbers; rows are their numbers in the client's data, nil for all in order.
func checkBatch(batch tensor.Map, rows []int) error {
	for _, name := range batch.Names() {
		t := batch[name]
		i := t.Finite()
		if i < 0 || len(t.Shape) == 0 {
			continue
		}
		row := i / (t.Len() / t.Shape[0])
		if rows != nil && row < len(rows) {
			row = rows[row]
		}
		return fmt.Errorf("%s of example %d holds %v; remove that example, or the cached features if its file is "+
			"sound", name, row, t.Data[i])
	}
	return nil
}
