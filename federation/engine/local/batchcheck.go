package local

import (
	"fmt"

	"promptfed/runtime/tensor"
)

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
