package checkpoint

import (
	"slices"

	"promptfed/runtime/tensor"
)

// FromMap returns a checkpoint in memory with tensors under their stored names; config is the configuration of the
// format, or nil.
func FromMap(format Format, m tensor.Map, config map[string]any, opts Options) (*Checkpoint, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	c := &Checkpoint{format: format, path: "(memory)", config: config, handles: map[string]*Handle{}, opts: opts}
	for name, t := range m {
		h := &Handle{Name: name, DType: "F32", Shape: slices.Clone(t.Shape), load: func() (*tensor.Tensor,
			error) {
			return t.Clone(), nil
		}}
		if t.IsInt() {
			h.DType = "I64"
		}
		c.handles[name] = h
	}
	return c, nil
}

// Detect returns the architecture of a checkpoint.
func Detect(c *Checkpoint) (Arch, error) {
	w, err := CLIP(c)
	if err != nil {
		return Arch{}, err
	}
	return w.Arch, nil
}
