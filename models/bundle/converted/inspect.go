package converted

import (
	"os"
	"path/filepath"
	"strings"

	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/runtime/oneline"
	"promptfed/runtime/safetensors"
)

// inspect describes a checkpoint, or any other .safetensors file.
func inspect(path string) (bundle.Report, error) {
	ckpt, err := checkpoint.Open(path, checkpoint.Options{})
	if err != nil {
		return bundle.Report{}, oneline.Error(err)
	}
	defer ckpt.Close()

	report := bundle.Report{Kind: bundle.KindCheckpoint, Path: path, Format: string(ckpt.Format())}
	for _, f := range append(ckpt.WeightFiles(), ckpt.Files()...) {
		if st, err := os.Stat(f); err == nil {
			report.Files = append(report.Files, bundle.FileReport{Name: filepath.Base(f), Size: st.Size()})
		}
	}

	for _, name := range ckpt.Names() {
		h, err := ckpt.Tensor(name)
		if err != nil {
			return report, err
		}
		report.Add(name, h.DType, h.Shape, "")
	}

	if w, err := checkpoint.CLIP(ckpt); err != nil {
		report.Problem = err.Error()
	} else {
		report.Arch = &w.Arch
		if err := (&conversion{ckpt: ckpt, weights: w}).describe(); err != nil {
			report.Problem = err.Error()
		}
	}

	if report.Arch == nil && ckpt.Format() == checkpoint.StateDict && strings.HasSuffix(path, ".safetensors") {
		f, err := safetensors.Open(path)
		if err != nil {
			return report, err
		}
		defer f.Close()
		report.Kind, report.Metadata = bundle.KindSafetensors, f.Metadata()
	}

	return report, nil
}
