package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

func inspectONNX(path string) (Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Report{}, err
	}
	p := &onnx.ModelProto{}
	if err := proto.Unmarshal(data, p); err != nil || p.Graph == nil {
		return Report{}, fmt.Errorf("%s: not an ONNX model, or cut short", path)
	}
	r := Report{Kind: KindONNX, Path: path, Format: strings.TrimSpace(p.ProducerName + " " + p.ProducerVersion),
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
		for _, e := range t.ExternalData {
			if e.Key == "location" {
				file = e.Value
			}
		}
		r.add(t.Name, typeName(t.DataType), shape, file)
	}
	constant := map[string]bool{}
	for _, t := range p.Graph.Initializer {
		constant[t.Name] = true
	}
	for _, v := range p.Graph.Input {
		if !constant[v.Name] {
			r.Inputs = append(r.Inputs, port(v))
		}
	}
	for _, v := range p.Graph.Output {
		r.Outputs = append(r.Outputs, port(v))
	}
	r.count()
	if err := r.onnxFiles(path); err != nil {
		return r, err
	}
	return r, nil
}

// onnxFiles lists the ONNX file and those of its external data; a missing one has size -1.
func (r *Report) onnxFiles(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	r.Files = append(r.Files, FileReport{filepath.Base(path), st.Size()})
	seen := map[string]bool{"": true}
	for _, t := range r.Tensors {
		if seen[t.External] {
			continue
		}
		seen[t.External] = true
		size := int64(-1)
		if filepath.IsLocal(filepath.FromSlash(t.External)) {
			if st, err := fs.Stat(os.DirFS(filepath.Dir(path)), t.External); err == nil {
				size = st.Size()
			}
		}
		r.Files = append(r.Files, FileReport{t.External, size})
	}
	return nil
}

func port(v *onnx.ValueInfoProto) PortReport {
	t := v.GetType().GetTensorType()
	out := PortReport{Name: v.Name, DType: typeName(t.GetElemType())}
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

// typeName is an ONNX element type in the words of safetensors where there is one.
func typeName(t int32) string {
	names := map[graph.DType]string{graph.Float: "F32", graph.Double: "F64", graph.Half: "F16", onnx.TensorProto_BFLOAT16: "BF16",
		graph.Int64: "I64", graph.Int32: "I32", onnx.TensorProto_INT16: "I16", onnx.TensorProto_INT8: "I8", graph.Uint8: "U8", graph.Bool: "BOOL"}
	if s, ok := names[graph.DType(t)]; ok {
		return s
	}
	return graph.DType(t).String()
}
