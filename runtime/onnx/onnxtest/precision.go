package onnxtest

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// Lower is onnx.LowerPrecision or LowerPrecision.
type Lower func(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto

// LowerConstants is LowerPrecision of a model whose constant matrices count as stored weights, as in small towers that
// keep theirs inside.
func LowerConstants(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
	return Lower(LowerPrecision).Constants(model, low)
}

// Constants is lower for a model whose constant matrices count as stored weights.
func (lower Lower) Constants(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
	model = proto.Clone(model).(*onnx.ModelProto)
	inside := map[string]bool{}
	for _, t := range model.Graph.Initializer {
		if !onnx.IsExternal(t) && t.DataType == int32(onnx.TensorProto_FLOAT) {
			inside[t.Name], t.DataLocation = true, onnx.TensorProto_EXTERNAL
		}
	}

	model = lower(model, low)
	for _, t := range model.Graph.Initializer {
		if inside[t.Name] {
			t.DataLocation = onnx.TensorProto_DEFAULT
		}
	}

	return model
}

// LowerPrecision is onnx.LowerPrecision for processors without operators of low precision: the model computes in
// float32, and rounds what would be of low precision to its bits of fraction. It has the range of float32.
func LowerPrecision(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
	model = onnx.LowerPrecision(model, low)
	bits := map[onnx.TensorProto_DataType]int{onnx.TensorProto_FLOAT16: 13, onnx.TensorProto_BFLOAT16: 16}[low]
	split := math.Float32bits(float32(math.Ldexp(1, bits) + 1))
	graph := model.Graph
	graph.Initializer = append(slices.Clone(graph.Initializer), &onnx.TensorProto{Name: "split", DataType: 1,
		RawData: binary.LittleEndian.AppendUint32(nil, split)})

	var out []*onnx.NodeProto
	add := func(kind, to string, from ...string) {
		out = append(out, &onnx.NodeProto{OpType: kind, Input: from, Output: []string{to}})
	}
	round := func(from, to string) { // Veltkamp (Dekker 1971): s = from (2^bits + 1), s - (s - from)
		add("Mul", to+"_s", from, "split")
		add("Sub", to+"_d", to+"_s", from)
		add("Sub", to, to+"_s", to+"_d")
	}

	for _, node := range graph.Node {
		to := slices.Clone(node.Output)
		isLow := func(name string) bool { return strings.HasSuffix(strings.TrimRight(name, "_"), "_low") }
		switch {
		case node.OpType == "Cast" && isLow(to[0]):
			round(node.Input[0], to[0])
		case node.OpType == "Cast" && isLow(node.Input[0]):
			add("Identity", to[0], node.Input[0])
		case slices.ContainsFunc(to, isLow):
			for i := range node.Output {
				node.Output[i] += "_exact"
			}
			out = append(out, node)
			for i := range to {
				round(node.Output[i], to[i])
			}
		default:
			out = append(out, node)
		}
	}

	graph.Node = out
	return model
}
