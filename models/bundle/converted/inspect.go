package converted

import (
	"os"
	"path/filepath"
	"strings"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/runtime/safetensors"
)

// inspect describes a checkpoint, or any other .safetensors file.
func inspect(path string) (bundle.Report, error) {
	c, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return bundle.Report{}, oneLine(err)
	}
	defer c.Close()
	r := bundle.Report{Kind: bundle.KindCheckpoint, Path: path, Format: string(c.Format())}
	for _, f := range append(c.WeightFiles(), c.Files()...) {
		if st, err := os.Stat(f); err == nil {
			r.Files = append(r.Files, bundle.FileReport{Name: filepath.Base(f), Size: st.Size()})
		}
	}
	for _, name := range c.Names() {
		h, err := c.Tensor(name)
		if err != nil {
			return r, err
		}
		r.Add(name, h.DType, h.Shape, "")
	}
	if w, err := checkpoint.CLIP(c); err != nil {
		r.Problem = err.Error()
	} else {
		r.Arch = &w.Arch
		if err := (&conversion{c: c, w: w}).describe(); err != nil {
			r.Problem = err.Error()
		}
	}
	if r.Arch == nil && c.Format() == checkpoint.StateDict && strings.HasSuffix(path, ".safetensors") {
		f, err := safetensors.Open(path)
		if err != nil {
			return r, err
		}
		defer f.Close()
		r.Kind, r.Metadata = bundle.KindSafetensors, f.Metadata()
	}
	return r, nil
}
