package checkpoint

import (
	"slices"
	"testing"

	"promptfed/runtime/tensor"
)

// fromMap returns a checkpoint in memory with tensors under their stored names; config is the configuration of the
// format, or nil.
func fromMap(t testing.TB, format Format, m tensor.Map, config map[string]any, opts Options) *Checkpoint {
	t.Helper()
	if err := opts.check(); err != nil {
		t.Fatal(err)
	}
	c := &Checkpoint{format: format, path: "(memory)", config: config, handles: map[string]*Handle{}, opts: opts}
	for name, x := range m {
		h := &Handle{Name: name, DType: "F32", Shape: slices.Clone(x.Shape)}
		h.load = func() (*tensor.Tensor, error) { return x.Clone(), nil }
		if x.IsInt() {
			h.DType = "I64"
		}
		c.handles[name] = h
	}
	return c
}

// Detect returns the architecture of a checkpoint.
func Detect(c *Checkpoint) (Arch, error) {
	w, err := CLIP(c)
	if err != nil {
		return Arch{}, err
	}
	return w.Arch, nil
}
