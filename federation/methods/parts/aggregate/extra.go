package aggregate

import (
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Extra returns a tensor that a client uploaded beside the shared parameters, of the given shape.
func Extra(u method.Upload, name string, shape ...int) (*tensor.Tensor, error) {
	t := u.Extra[name]
	if t == nil || t.IsInt() || !slices.Equal(t.Shape, shape) {
		return nil, fmt.Errorf("client %d uploaded %v for %s, which must be float32%v; the client runs another "+
			"experiment", u.Client, t, name, shape)
	}
	return t, nil
}
