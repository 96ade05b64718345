package graph_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
)

func node(kind string, in, out string, at ...*onnx.AttributeProto) *onnx.NodeProto {
	return &onnx.NodeProto{OpType: kind, Input: strings.Fields(in), Output: strings.Fields(out), Attribute: at}
}

func encoded(t *testing.T, f *graph.File) []byte {
	t.Helper()
	m, err := f.Model(f.Outputs...)
	goldentest.NoError(t, err)
	return onnxtest.Marshal(t, m)
}

// TestReadWriteKeepsWhatItDoesNotKnow rewrites a model with unknown fields and operators, a subgraph, functions,
// metadata and doc strings.
func TestReadWriteKeepsWhatItDoesNotKnow(t *testing.T) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "kept")
	branch := &onnx.GraphProto{Name: "inner", Node: []*onnx.NodeProto{node("Neg", "h", "r")},
		Output: []*onnx.ValueInfoProto{info("r", onnx.TensorProto_FLOAT)}}
	m := model(18, node("Warp", "x", "h"), node("If", "flag", "b", &onnx.AttributeProto{Name: "then_branch",
		Type: onnx.AttributeProto_GRAPH, G: branch}), node("Add", "h b", "y"))
	m.Graph.Node[0].Domain, m.Graph.Node[0].DocString = "org.example", "bends"
	m.Graph.Input = append(m.Graph.Input, info("flag", onnx.TensorProto_BOOL), info("unused", onnx.TensorProto_FLOAT,
		1))
	m.Functions = []*onnx.FunctionProto{{Name: "Warp", Domain: "org.example", Input: []string{"from"},
		Output: []string{"to"}}}
	m.MetadataProps = []*onnx.StringStringEntryProto{{Key: "author", Value: "someone"}}
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: "org.example", Version: 3})
	m.Graph.Node[0].ProtoReflect().SetUnknown(unknown)
	m.Graph.ProtoReflect().SetUnknown(unknown)
	m.ProtoReflect().SetUnknown(unknown)
	b, err := proto.Marshal(m)
	goldentest.NoError(t, err)
	f, err := graph.Read(b)
	goldentest.NoError(t, err)
	first, second := encoded(t, f), encoded(t, f)
	if !bytes.Equal(first, second) {
		t.Error("the bytes differ from one writing to the next")
	}
	var got onnx.ModelProto
	goldentest.NoError(t, proto.Unmarshal(first, &got))
	m.Graph.Initializer = nil // nothing uses it
	for _, p := range []*onnx.GraphProto{m.Graph, got.Graph} {
		p.Output[0].Type = nil // y is the result of Add, whose type the file lacks
	}
	if !proto.Equal(m, &got) {
		t.Errorf("written\n%v\nwant\n%v", &got, m)
	}
}

func TestUpgrade(t *testing.T) {
	for _, c := range []struct {
		version int64
		node    *onnx.NodeProto
		want    string
	}{
		{11, node("ReduceMean", "x", "y", ints("axes", 1)), "[2,1,4]"},
		{12, node("Unsqueeze", "x", "y", ints("axes", 0)), "[1,2,3,4]"},
		{9, node("Slice", "x", "y", ints("axes", 2), ints("starts", 1), ints("ends", 3)), "[2,3,2]"},
		{10, node("Pad", "x", "y", ints("pads", 0, 0, 1, 0, 0, 1)), "[2,3,6]"},
		{11, node("Split", "x", "y z", ints("split", 1, 2), integer("axis", 1)), "[2,1,4]"},
		{11, node("Softmax", "x", "y", integer("axis", 2)), "[2,3,4]"},
		{11, node("Softmax", "x", "y"), "[2,3,4]"}, // of the matrix [2,12]
		{12, node("Unsqueeze", "x", "y", integer("axes", 0)), "Unsqueeze: attribute axes is of type INT, not a list " +
			"of integers"},
		{9, node("Upsample", "x i", "y"), "Upsample: this form of operator set 9 is not supported; export with " +
			"operator set 13 or newer"},
	} {
		f, err := graph.ReadModel(model(c.version, c.node))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			n, _ := f.Output("y")
			got = n.Shape().String()
		}
		if got != c.want {
			t.Errorf("%s of operator set %d: %s, want %s", c.node.OpType, c.version, got, c.want)
		}
	}
}

func TestHostileModels(t *testing.T) {
	neg := node("Neg", "x", "y")
	alter := func(f func(m *onnx.ModelProto)) *onnx.ModelProto {
		m := model(18, proto.Clone(neg).(*onnx.NodeProto))
		f(m)
		return m
	}
	for want, m := range map[string]*onnx.ModelProto{
		"it has no graph with outputs":         alter(func(m *onnx.ModelProto) { m.Graph.Output = nil }),
		"operator set 0 is too old":            alter(func(m *onnx.ModelProto) { m.OpsetImport = nil }),
		`input "q" is made by no earlier node`: model(18, node("Neg", "q", "y")),
		`input "y" is made by no earlier node`: model(18, node("Neg", "y", "y")),
		`value "x" is made twice`:              model(18, node("Neg", "x", "x")),
		`output "y" is made by no node`:        model(18, node("Neg", "x", "z")),
		"more than 1048576 values":             model(18, node("Split", "x", strings.Repeat("o ", 1<<20+1))),
		"input 1 is missing; it needs 3": model(18, &onnx.NodeProto{OpType: "Where", Input: []string{"x", "", "x"},
			Output: []string{"y"}}),
		"it has no output":  model(18, node("Neg", "x", ""), neg),
		"it has no output ": model(18, node("Constant", "", "")),
		"its value is not a tensor": model(18, node("Constant", "", "y", &onnx.AttributeProto{Name: "value",
			Type: onnx.AttributeProto_TENSOR})),
		"12 bytes for dimensions [2]": alter(func(m *onnx.ModelProto) {
			m.Graph.Initializer[0].Int64Data, m.Graph.Initializer[0].RawData = nil, make([]byte, 12)
		}),
		"1 elements for dimensions [2]": alter(func(m *onnx.ModelProto) {
			m.Graph.Initializer[0].Int64Data = []int64{1}
		}),
		"dimensions [-2] are out of range": alter(func(m *onnx.ModelProto) {
			m.Graph.Initializer[0].Dims = []int64{-2}
		}),
		"dimensions [1099511627776 4]": alter(func(m *onnx.ModelProto) {
			m.Graph.Initializer[0].Dims = []int64{1 << 40, 4}
		}),
		"a value without a name": alter(func(m *onnx.ModelProto) { m.Graph.Input[0].Name = "" }),
		`inputs: value "x" is made twice`: alter(func(m *onnx.ModelProto) {
			m.Graph.Input = append(m.Graph.Input, m.Graph.Input[0])
		}),
		`its inner graph reads "later"`: model(18, node("If", "x", "y", &onnx.AttributeProto{Name: "b",
			G: &onnx.GraphProto{Node: []*onnx.NodeProto{node("Neg", "later", "r")}}})),
		"not an ONNX model: it has no graph": {},
		`value name "a\ab" holds a control`:  model(18, node("Neg", "a\ab", "y")),
		"has 5000 bytes; at most 4096":       model(18, node(strings.Repeat("n", 5000), "x", "y")),
	} {
		b, err := proto.Marshal(m)
		goldentest.NoError(t, err)
		_, err = graph.Read(b)
		goldentest.WantError(t, err, strings.TrimSpace(want))
	}
	good, _ := proto.Marshal(model(18, neg))
	if _, err := graph.Read(good[:len(good)-3]); err == nil {
		t.Error("a truncated model was read")
	}
}

// Types and shapes that a file states hold where inference finds none: for unknown operators, and for sizes that are
// known at run time only. They change nothing that inference knows.
func TestStatedShapes(t *testing.T) {
	m := model(18, node("Warp", "x", "h"), node("NonZero", "x", "n"), node("Neg", "x", "y"))
	m.Graph.Node[0].Domain = "org.example"
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: "org.example", Version: 1})
	m.Graph.ValueInfo = []*onnx.ValueInfoProto{info("h", graph.Int64, 5, 6), info("n", graph.Float, 3, 7)}
	m.Graph.Output[0] = info("y", graph.Int64, 9, 9, 9)
	f := read(t, m)
	for name, want := range map[string]string{"h": "INT64[5,6]", "n": "INT64[3,7]", "y": "FLOAT[2,3,4]"} {
		n, _ := f.Node(name)
		if got := n.DType().String() + n.Shape().String(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	m.Graph.ValueInfo = []*onnx.ValueInfoProto{info("h", graph.Int64, make([]int64, graph.MaxRank+1)...)}
	if h, _ := read(t, m).Node("h"); h.Rank() != -1 {
		t.Errorf("h has %d axes", h.Rank())
	}
	// A name of a size that is no identifier is in parentheses, as a whole.
	for param, want := range map[string]string{"B_2": "[B_2]", "2x": "[(2x)]", "a-b": "[(a-b)]", "~": "[(~)]"} {
		m.Graph.ValueInfo = []*onnx.ValueInfoProto{info("h", graph.Int64, 1)}
		m.Graph.ValueInfo[0].Type.GetTensorType().Shape.Dim[0].Value = &onnx.TensorShapeProto_Dimension_DimParam{
			DimParam: param}
		if h, _ := read(t, m).Node("h"); h.Shape().String() != want {
			t.Errorf("the size %q has the shape %v, want %s", param, h.Shape(), want)
		}
	}
}
