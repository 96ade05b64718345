package bundle

import (
	"maps"
	"slices"
	"strings"

	"promptfed/models/checkpoint"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Kinds of reports.
const (
	KindBundle      = "bundle"
	KindCheckpoint  = "checkpoint"
	KindONNX        = "onnx"
	KindSafetensors = "safetensors" // tensors that are not of a CLIP
)

// Report describes the content of a path. Fields that do not apply are empty.
type Report struct {
	Kind     string
	Path     string
	Format   string            // of a checkpoint; producer of an ONNX file
	Arch     *checkpoint.Arch  // of a CLIP
	Problem  string            // why a checkpoint cannot be converted; empty if it can
	Bundle   *Bundle           // of a bundle
	Found    []Finding         // of a bundle with an incomplete description: derived properties and their sources
	Files    []FileReport      // sorted
	DTypes   []DTypeReport     // of the tensors, sorted
	Tensors  []TensorReport    // sorted
	Inputs   []ValueReport     // of an ONNX file, in its order
	Outputs  []ValueReport     // of an ONNX file, in its order
	Opsets   map[string]int64  // of an ONNX file, by domain; "" is ONNX itself
	Ops      map[string]int    // number of operators of each kind in an ONNX file
	Metadata map[string]string // of an ONNX or safetensors file
}

// Finding is one derived property.
type Finding struct{ What, Value string }

// FileReport is one file.
type FileReport struct {
	Name string // relative to the path's folder
	Size int64
}

// DTypeReport counts the tensors of one type.
type DTypeReport struct {
	DType           string
	Tensors         int
	Elements, Bytes int64
}

// TensorReport is one stored tensor.
type TensorReport struct {
	Name, DType string
	Shape       []int
	External    string // the external data file of an ONNX file that holds it
}

// ValueReport is an input or output of an ONNX file; axes are numbers or symbols.
type ValueReport struct {
	Name, DType string
	Shape       []string // nil if the file does not state it
}

// Add adds a tensor.
func (r *Report) Add(name, dtype string, shape []int, external string) {
	r.Tensors = append(r.Tensors, TensorReport{name, dtype, shape, external})
}

// count sorts the tensors and counts them by type.
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
