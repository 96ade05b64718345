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
