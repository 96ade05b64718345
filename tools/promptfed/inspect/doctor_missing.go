package inspect

import (
	"os"
	"slices"
	"strings"
)

// missing is what a purpose lacks on this machine.
type missing struct {
	For  string `json:"for"`
	What string `json:"what"`
	Do   string `json:"do"`
}

// needs lists what is missing, one entry for each purpose.
func (m *machine) needs() {
	add := func(purpose, what, do string) { m.Missing = append(m.Missing, missing{purpose, what, do}) }
	if m.Library == nil {
		add("every run", "ONNX Runtime", "put its library beside the program, or its path into ONNXRUNTIME_LIB; in a "+
			"checkout, make library")
	}

	if !slices.ContainsFunc(m.Backbones, func(d modelDir) bool { return d.Folder != "" && len(d.Names) > 0 }) {
		add("results", "weights of a real CLIP", "promptfed pull clip-vit-base-patch16 fetches 0.6 GB (docs/models.md)")
	}

	const where = "promptfed list datasets NAME says which files, and from where"
	_, err := os.Stat(m.DataRoot)
	switch {
	case m.DataRoot == "":
		add("real images", "a folder with image sets", "name it with --data, or in "+dataRoot+"; "+where)
	case err != nil:
		add("real images", err.Error(), "name another folder with --data, or in "+dataRoot)
	case len(m.without) > 0:
		add("real images", "in "+m.DataRoot+" "+strings.Join(m.without, ", "), where)
	}

	if l := m.Library; l != nil && l.Fallback != "" {
		add("CUDA", "provider cuda does not run here", "provider auto above says why; docs/performance.md says "+
			"what a GPU needs")
	}
}
