package bundle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/models/checkpoint"
	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
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
	Kind    string           `json:"kind"`
	Path    string           `json:"path"`
	Format  string           `json:"format"`  // of a checkpoint; producer of an ONNX file
	Arch    *checkpoint.Arch `json:"-"`       // of a CLIP
	Problem string           `json:"problem"` // why a checkpoint cannot be converted; empty if it can
	Bundle  *Bundle          `json:"-"`       // of a bundle
	// Found lists derived properties and their sources, of a bundle with an incomplete description.
	Found    []Finding         `json:"found"`
	Files    []FileReport      `json:"files"`                    // sorted
	DTypes   []DTypeReport     `json:"dtypes"`                   // of the tensors, sorted
	Tensors  []TensorReport    `json:"tensors"`                  // sorted
	Inputs   []ValueReport     `json:"inputs"`                   // of an ONNX file, in its order
	Outputs  []ValueReport     `json:"outputs"`                  // of an ONNX file, in its order
	Opsets   map[string]int64  `json:"opsets" key:"DOMAIN"`      // of an ONNX file; "" is ONNX itself
	Ops      map[string]int    `json:"operators" key:"OPERATOR"` // number of operators of each kind in an ONNX file
	Metadata map[string]string `json:"metadata" key:"KEY"`       // of an ONNX or safetensors file
}

// Finding is one derived property.
type Finding struct {
	What  string `json:"what"`
	Value string `json:"value"`
}

// FileReport is one file.
type FileReport struct {
	Name string `json:"name"` // relative to the path's folder
	Size int64  `json:"bytes"`
}

// DTypeReport counts the tensors of one type.
type DTypeReport struct {
	DType    string `json:"dtype"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
	Bytes    int64  `json:"bytes"`
}

// TensorReport is one stored tensor.
type TensorReport struct {
	Name     string `json:"name"`
	DType    string `json:"dtype"`
	Shape    []int  `json:"shape"`
	External string `json:"external"` // the external data file of an ONNX file that holds it
}

// ValueReport is an input or output of an ONNX file; axes are numbers or symbols.
type ValueReport struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Shape []string `json:"shape"` // nil if the file does not state it
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

func inspectONNX(path string) (Report, error) {
	dir, file := filepath.Dir(path), filepath.Base(path)
	m, err := onnx.OpenFile(dir, file)
	if err != nil {
		return Report{}, err
	}

	files, err := onnx.ExternalFiles(m)
	if err != nil {
		return Report{}, err
	}

	r, err := reportONNX(m, file)
	r.Path = path
	files = slices.DeleteFunc(files, func(name string) bool { return name == file })
	for _, name := range append([]string{file}, files...) {
		st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return Report{}, err
		}
		r.Files = append(r.Files, FileReport{name, st.Size()})
	}

	return r, err
}

// reportONNX describes a model; own is the name of its file.
func reportONNX(modelProto *onnx.ModelProto, own string) (Report, error) {
	report := Report{Kind: KindONNX, Format: strings.TrimSpace(modelProto.ProducerName + " " +
		modelProto.ProducerVersion),
		Opsets: map[string]int64{}, Ops: map[string]int{}, Metadata: map[string]string{}}
	for _, o := range modelProto.OpsetImport {
		report.Opsets[o.Domain] = o.Version
	}

	for _, m := range modelProto.MetadataProps {
		report.Metadata[m.Key] = m.Value
	}

	for _, n := range modelProto.Graph.Node {
		kind := n.OpType
		if n.Domain != "" {
			kind = n.Domain + ":" + kind
		}
		report.Ops[kind]++
	}

	for _, proto := range modelProto.Graph.Initializer {
		shape := convert.Slice(proto.Dims, func(d int64) int { return int(d) })
		file := ""
		if onnx.IsExternal(proto) {
			e, err := onnx.ExternalOf(proto)
			if err != nil {
				return report, err
			}
			if file = e.File; file == own {
				file = ""
			}
		}
		report.Add(proto.Name, TypeName(graph.DType(proto.DataType)), shape, file)
	}

	for _, v := range onnx.Inputs(modelProto.Graph) {
		report.Inputs = append(report.Inputs, valueReport(v))
	}

	for _, v := range modelProto.Graph.Output {
		report.Outputs = append(report.Outputs, valueReport(v))
	}

	return report, nil
}

func valueReport(v *onnx.ValueInfoProto) ValueReport {
	t := v.GetType().GetTensorType()
	out := ValueReport{Name: v.Name, DType: TypeName(graph.DType(t.GetElemType()))}
	if t.GetShape() == nil {
		return out
	}

	out.Shape = []string{}
	for _, d := range t.Shape.Dim {
		switch x := d.Value.(type) {
		case *onnx.TensorShapeProto_Dimension_DimValue:
			out.Shape = append(out.Shape, fmt.Sprint(x.DimValue))
		case *onnx.TensorShapeProto_Dimension_DimParam:
			out.Shape = append(out.Shape, x.DimParam)
		default:
			out.Shape = append(out.Shape, "?")
		}
	}

	return out
}

// TypeName returns the name of an ONNX element type in safetensors, if it has one.
func TypeName(dtype graph.DType) string {
	names := map[graph.DType]string{graph.Float: "F32", graph.Double: "F64", graph.Half: "F16",
		onnx.TensorProto_BFLOAT16: "BF16",
		graph.Int64:               "I64", graph.Int32: "I32", onnx.TensorProto_INT16: "I16",
		onnx.TensorProto_INT8: "I8",
		graph.Uint8:           "U8", graph.Bool: "BOOL"}

	if s, ok := names[dtype]; ok {
		return s
	}

	return dtype.String()
}
