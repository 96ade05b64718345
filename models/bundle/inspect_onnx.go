package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// maxONNX bounds an ONNX file, in bytes: no protobuf message is longer.
const maxONNX = 2 << 30

func inspectONNX(path string) (Report, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Report{}, err
	}
	if st.Size() > maxONNX {
		return Report{}, fmt.Errorf("%s: %d bytes, an ONNX file has at most %d", path, st.Size(), maxONNX)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Report{}, err
	}
	r, err := reportONNX(data)
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w", path, err)
	}
	r.Path, r.Files = path, []FileReport{{filepath.Base(path), st.Size()}}
	r.externalFiles(filepath.Dir(path))
	return r, nil
}

// reportONNX tells what an encoded ONNX model holds.
func reportONNX(data []byte) (Report, error) {
	p := &onnx.ModelProto{}
	if err := proto.Unmarshal(data, p); err != nil || p.Graph == nil {
		return Report{}, errors.New("not an ONNX model, or cut short")
	}
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
	return r, nil
}

// externalFiles lists the files of external data, named relative to dir; a missing one, or one outside dir, has size
// -1.
func (r *Report) externalFiles(dir string) {
	seen := map[string]bool{"": true}
	for _, t := range r.Tensors {
		if seen[t.External] {
			continue
		}
		seen[t.External] = true
		size := int64(-1)
		if local := filepath.FromSlash(t.External); filepath.IsLocal(local) {
			if st, err := os.Stat(filepath.Join(dir, local)); err == nil {
				size = st.Size()
			}
		}
		r.Files = append(r.Files, FileReport{t.External, size})
	}
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
	names := map[graph.DType]string{graph.Float: "F32", graph.Double: "F64", graph.Half: "F16",
		onnx.TensorProto_BFLOAT16: "BF16",
		graph.Int64:               "I64", graph.Int32: "I32", onnx.TensorProto_INT16: "I16",
		onnx.TensorProto_INT8: "I8",
		graph.Uint8:           "U8", graph.Bool: "BOOL"}
	if s, ok := names[graph.DType(t)]; ok {
		return s
	}
	return graph.DType(t).String()
}
