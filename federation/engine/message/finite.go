package message

import (
	"fmt"

	"promptfed/runtime/tensor"
)

// DivergenceHint is the advice of messages about diverged training.
const DivergenceHint = "lower train.lr or set train.clip_norm"

// CheckFinite refuses tensors that hold NaN or an infinity. Its error puts the prefix before the name of the tensor.
func CheckFinite(what string, m tensor.Map) error {
	for _, name := range m.Names() {
		if i := m[name].NonFinite(); i >= 0 {
			return fmt.Errorf("%s%s holds %v at element %d; %s", what, name, m[name].Data[i], i, DivergenceHint)
		}
	}
	return nil
}
