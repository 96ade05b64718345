package bundle

import (
	"maps"
	"slices"
	"strings"

	"promptfed/models/checkpoint"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Kinds of things that Inspect knows.
const (
	KindBundle      = "bundle"
	KindCheckpoint  = "checkpoint"
	KindONNX        = "onnx"
	KindSafetensors = "safetensors" // tensors that are no CLIP
)

// Report tells what a path holds. Fields that do not apply are empty.
type Report struct {
	Kind     string
	Path     string
	Format   string            // of a checkpoint; producer of an ONNX file
	Arch     *checkpoint.Arch  // of a CLIP
	Problem  string            // why a checkpoint is no CLIP that can be converted; empty when it is one
	Bundle   *Bundle           // of a bundle
	Found    []Finding         // of a bundle whose files do not say all: what was found out, and from what
	Files    []FileReport      // in sorted order
	DTypes   []DTypeReport     // of the tensors, in sorted order
	Tensors  []TensorReport    // in sorted order
	Inputs   []ValueReport     // of an ONNX file, in its order
	Outputs  []ValueReport     // of an ONNX file, in its order
	Opsets   map[string]int64  // of an ONNX file, by domain; "" is ONNX itself
	Ops      map[string]int    // how many operators of each kind an ONNX file has
	Metadata map[string]string // of an ONNX or safetensors file
}

// Finding is one thing that was found out.
type Finding struct{ What, Value string }

// FileReport is one file.
type FileReport struct {
	Name string // relative to the path's folder
	Size int64
}

// DTypeReport counts the tensors stored as one type.
type DTypeReport struct {
	DType           string
	Tensors         int
	Elements, Bytes int64
}

// TensorReport is one stored tensor.
type TensorReport struct {
	Name, DType string
	Shape       []int
	External    string // file that an ONNX file keeps it in
}

// ValueReport is an input or output of an ONNX file; axes are numbers or symbols.
type ValueReport struct {
	Name, DType string
	Shape       []string // nil when the file does not say
}

// Add adds a tensor.
func (r *Report) Add(name, dtype string, shape []int, external string) {
	r.Tensors = append(r.Tensors, TensorReport{name, dtype, shape, external})
}

// count sorts the tensors and adds them up by type.
func (r *Report) count() {
	slices.SortFunc(r.Tensors, func(a, b TensorReport) int { return strings.Compare(a.Name, b.Name) })
	by := map[string]DTypeReport{}
	for _, t := range r.Tensors {
		d := by[t.DType]
		n := int64(tensor.Size(t.Shape))
		d.DType, d.Tensors, d.Elements = t.DType, d.Tensors+1, d.Elements+n
		d.Bytes += n * int64(safetensors.ElementSize(t.DType))
		by[t.DType] = d
	}
	for _, k := range slices.Sorted(maps.Keys(by)) {
		r.DTypes = append(r.DTypes, by[k])
	}
}
