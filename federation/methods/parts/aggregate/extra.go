package aggregate

import (
	"fmt"
	"maps"
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

// Send sends tensors to everyone, or else to some clients, who keep no others of these names.
func Send(global *method.Global, everyone bool, clients []int, tensors tensor.Map) {
	for name := range tensors {
		delete(global.Broadcast, name)
	}

	if everyone {
		maps.Copy(global.Broadcast, tensors)
	}

	for _, k := range clients {
		sent := global.ExtrasFor(k)
		for name := range tensors {
			delete(sent, name)
		}
		if !everyone {
			maps.Copy(sent, tensors)
		}
	}
}
