package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

func inspectONNX(path string) (Report, error) {
	dir, file := filepath.Dir(path), filepath.Base(path)
	m, err := onnx.OpenFile(dir, file)
	if err != nil {
		return Report{}, err
	}
	r, err := reportONNX(m, file)
	r.Path = path
	for _, name := range append([]string{file}, externalFiles(r)...) {
		st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return Report{}, err
		}
		r.Files = append(r.Files, FileReport{name, st.Size()})
	}
	return r, err
}

func externalFiles(r Report) []string {
	var out []string
	for _, t := range r.Tensors {
		if t.External != "" && !slices.Contains(out, t.External) {
			out = append(out, t.External)
		}
	}
	return out
}

// reportONNX describes a model; own is the name of its file.
func reportONNX(p *onnx.ModelProto, own string) (Report, error) {
	r := Report{Kind: KindONNX, Format: strings.TrimSpace(p.ProducerName + " " + p.ProducerVersion),
		Opsets: map[string]int64{}, Ops: map[string]int{}, Metadata: map[string]string{}}
	for _, o := range p.OpsetImport {
		r.Opsets[o.Domain] = o.Version
	}
	for _, m := range p.MetadataProps {
		r.Metadata[m.Key] = m.Value
	}
	for _, n := range p.Graph.Node {
		kind := n.OpType
		if n.Domain != "" {
			kind = n.Domain + ":" + kind
		}
		r.Ops[kind]++
	}
	for _, t := range p.Graph.Initializer {
		shape := make([]int, len(t.Dims))
		for i, d := range t.Dims {
			shape[i] = int(d)
		}
		file := ""
		if onnx.IsExternal(t) {
			e, err := onnx.ExternalOf(t)
			if err != nil {
				return r, err
			}
			if file = e.File; file == own {
				file = ""
			}
		}
		r.Add(t.Name, TypeName(graph.DType(t.DataType)), shape, file)
	}
	for _, v := range onnx.Inputs(p.Graph) {
		r.Inputs = append(r.Inputs, valueReport(v))
	}
	for _, v := range p.Graph.Output {
		r.Outputs = append(r.Outputs, valueReport(v))
	}
	return r, nil
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
func TypeName(t graph.DType) string {
	names := map[graph.DType]string{graph.Float: "F32", graph.Double: "F64", graph.Half: "F16",
		onnx.TensorProto_BFLOAT16: "BF16",
		graph.Int64:               "I64", graph.Int32: "I32", onnx.TensorProto_INT16: "I16",
		onnx.TensorProto_INT8: "I8",
		graph.Uint8:           "U8", graph.Bool: "BOOL"}
	if s, ok := names[t]; ok {
		return s
	}
	return t.String()
}
