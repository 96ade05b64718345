package onnx_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

func node(kind, in, out string, at ...*onnx.AttributeProto) *onnx.NodeProto {
	return &onnx.NodeProto{OpType: kind, Input: strings.Fields(in), Output: strings.Fields(out), Attribute: at}
}

func value(name string, t onnx.TensorProto_DataType, dims ...int64) *onnx.ValueInfoProto {
	s := &onnx.TensorShapeProto{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &onnx.TensorShapeProto_Dimension{Value: &onnx.TensorShapeProto_Dimension_DimValue{
			DimValue: d}})
	}
	return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{
		TensorType: &onnx.TypeProto_Tensor{ElemType: int32(t), Shape: s}}}}
}

const (
	float = onnx.TensorProto_FLOAT
	flag  = onnx.TensorProto_BOOL
)

func model(version int64, nodes ...*onnx.NodeProto) *onnx.ModelProto {
	y := value("y", float)
	y.GetType().GetTensorType().Shape = nil
	return &onnx.ModelProto{IrVersion: 8, OpsetImport: []*onnx.OperatorSetIdProto{{Version: version}},
		Graph: &onnx.GraphProto{Name: "g", Node: nodes, Output: []*onnx.ValueInfoProto{y},
			Input: []*onnx.ValueInfoProto{value("x", float, 2, 3), value("yes", flag)}}}
}

func ints(name string, v ...int64) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INTS, Ints: v}
}

func subgraph(name string, nodes ...*onnx.NodeProto) *onnx.AttributeProto {
	out := nodes[len(nodes)-1].Output[0]
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_GRAPH, G: &onnx.GraphProto{Name: name,
		Node: nodes, Output: []*onnx.ValueInfoProto{{Name: out}}}}
}

// upgraded runs an upgraded model for x = ln 1 .. ln 6 and a true condition.
func upgraded(t *testing.T, m *onnx.ModelProto) []float32 {
	t.Helper()
	goldentest.NoError(t, onnx.Check(m))
	goldentest.NoError(t, onnx.Upgrade(m))
	x := tensor.New(2, 3)
	for i := range x.Data {
		x.Data[i] = float32(math.Log(float64(i + 1)))
	}
	out := orttest.RunOnce(t, m, ort.Options{}, tensor.Map{"x": x, "yes": tensor.OfInts([]int64{1})})
	return out["y"].Data
}

func near(t *testing.T, what string, got []float32, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range got {
		if math.Abs(float64(got[i])-want[i]) > 1e-5 {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
}

// The expected numbers are by hand: exp x is 1 .. 6, so a normaliser over all elements divides by 21, and one over rows
// by 6 and 15. The row sums of x are ln 6 and ln 120.
func TestUpgradeComputesTheSame(t *testing.T) {
	rows := []float64{1. / 6, 2. / 6, 3. / 6, 4. / 15, 5. / 15, 6. / 15}
	all := []float64{1. / 21, 2. / 21, 3. / 21, 4. / 21, 5. / 21, 6. / 21}
	axis := func(n int64) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: "axis", Type: onnx.AttributeProto_INT, I: n}
	}
	keep := &onnx.AttributeProto{Name: "keepdims", Type: onnx.AttributeProto_INT, I: 0}
	for _, c := range []struct {
		what  string
		nodes []*onnx.NodeProto
		want  []float64
	}{
		{"rows", []*onnx.NodeProto{node("Softmax", "x", "y")}, rows},
		{"last axis", []*onnx.NodeProto{node("Softmax", "x", "y", axis(-1))}, rows},
		{"everything", []*onnx.NodeProto{node("Softmax", "x", "y", axis(0))}, all},
		{"an unknown rank", []*onnx.NodeProto{node("Identity", "x", "h"), node("Softmax", "h", "y", axis(1))}, rows},
		{"an inner graph", []*onnx.NodeProto{node("If", "yes", "y",
			subgraph("then_branch", node("ReduceSum", "x", "a", ints("axes", 1), keep)),
			subgraph("else_branch", node("ReduceMean", "x", "b", ints("axes", 1), keep)))},
			[]float64{math.Log(6), math.Log(120)}},
	} {
		near(t, c.what, upgraded(t, model(11, c.nodes...)), c.want...)
	}
}

// function is f(a, b) = -k (a + b) + a. Its subgraph reads values of the function by name and computes a value with a
// name that the caller uses too.
func function() *onnx.FunctionProto {
	k := &onnx.AttributeProto{Name: "value_float", Type: onnx.AttributeProto_FLOAT, RefAttrName: "k"}
	inner := func(name string) *onnx.AttributeProto {
		return subgraph(name, node("Neg", "c", "x"), node("Add", "x a", "r"))
	}
	return &onnx.FunctionProto{Name: "f", Domain: "own", Input: []string{"a", "b", "sure"}, Output: []string{"out"},
		Attribute: []string{"k"}, OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}}, Node: []*onnx.NodeProto{
			node("Add", "a b", "h"), node("Constant", "", "k", k), node("Mul", "h k", "c"),
			node("If", "sure", "out", inner("then_branch"), inner("else_branch"))}}
}

func call(name, in, out string, k float32) *onnx.NodeProto {
	n := node("f", in, out, &onnx.AttributeProto{Name: "k", Type: onnx.AttributeProto_FLOAT, F: k})
	n.Domain, n.Name = "own", name
	return n
}

// By hand: with k = 2, c = f(x, x) is -2 (2x) + x = -3x; with k = 3, f(c, x) is -3 (-2x) - 3x = 3x. A second function
// that calls the first one doubles that.
func TestFunctionsBecomeTheirNodes(t *testing.T) {
	want := make([]float64, 6)
	for i := range want {
		want[i] = 3 * math.Log(float64(i+1))
	}
	own := &onnx.OperatorSetIdProto{Domain: "own", Version: 1}
	m := model(18, call("first", "x x yes", "c", 2), call("", "c x yes", "y", 3))
	m.Functions, m.OpsetImport = []*onnx.FunctionProto{function()}, append(m.OpsetImport, own)
	near(t, "two calls", upgraded(t, m), want...)
	if len(m.Functions) != 0 {
		t.Errorf("%d functions are left", len(m.Functions))
	}
	outer := &onnx.FunctionProto{Name: "g", Domain: "own", Input: []string{"x", "t"}, Output: []string{"y"},
		OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}, own}, Node: []*onnx.NodeProto{
			call("first", "x x t", "c", 2), call("first", "c x t", "d", 3), node("Add", "d d", "y")}}
	g := node("g", "x yes", "y")
	g.Domain = "own"
	m = model(18, g)
	m.Functions, m.OpsetImport = []*onnx.FunctionProto{function(), outer}, append(m.OpsetImport, own)
	for i := range want {
		want[i] *= 2
	}
	near(t, "nested", upgraded(t, m), want...)
}

// A file of some kilobytes must not expand to gigabytes of nodes. The bytes allocated also bound the time, which is not
// measured.
func TestFunctionsAreBounded(t *testing.T) {
	big := &onnx.AttributeProto{Name: "value_ints", Type: onnx.AttributeProto_INTS, Ints: make([]int64, 1<<20)}
	double := func(name, given string) *onnx.FunctionProto {
		return &onnx.FunctionProto{Name: name, Input: []string{"a"}, Output: []string{"c"},
			Node: []*onnx.NodeProto{node(given, "a", "b"), node(given, "b", "c")}}
	}
	names := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	var doubled []*onnx.FunctionProto
	for i, name := range names[1:] {
		doubled = append(doubled, double(name, names[i]))
	}
	body := func(n ...*onnx.NodeProto) *onnx.FunctionProto {
		return &onnx.FunctionProto{Name: "a", Input: []string{"a"}, Output: []string{"c"}, Node: n}
	}
	neg := node("Neg", "a", "c")
	for want, functions := range map[string][]*onnx.FunctionProto{
		"or a function calls itself":   {body(node("a", "a", "c"))},
		"more than 131072 operators":   append(doubled, body(neg)),
		"or 268435456 bytes of them":   append(doubled, body(neg, node("Constant", "", "k", big))),
		"made by none of its nodes":    {body(node("Neg", "a", "b"))},
		"1 inputs and 1 outputs for a": {{Name: "a", Output: []string{"c"}, Node: []*onnx.NodeProto{neg}}},
		"a graph by default": {{Name: "a", Input: []string{"a"}, Output: []string{"c"}, Node: []*onnx.NodeProto{neg},
			AttributeProto: []*onnx.AttributeProto{subgraph("body", neg)}}},
		`input "a" of the function is made`: {{Name: "a", Input: []string{"a", "a"}, Output: []string{"c"},
			Node: []*onnx.NodeProto{neg}}},
		"attribute axes is of type INT, not": {body(node("Squeeze", "a", "c", &onnx.AttributeProto{Name: "axes",
			Type: onnx.AttributeProto_INT}))},
	} {
		kind := "a"
		if len(functions) > 1 {
			kind = "z"
		}
		m := model(11, node(kind, "x", "y"))
		for _, f := range functions {
			m.Functions = append(m.Functions, proto.Clone(f).(*onnx.FunctionProto))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := onnx.Upgrade(m)
		runtime.ReadMemStats(&after)
		goldentest.WantError(t, err, want)
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1024 {
			t.Errorf("%s: %d MiB allocated", want, used)
		}
	}
}

// What became an input, by ONNX's table of changes: each form before and at the operator set that changed it. An
// operator is written with its inputs and attributes; of a constant, its numbers.
func TestUpgradedForms(t *testing.T) {
	attribute := func(name string, n int64) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INT, I: n}
	}
	number := func(name string, x float32) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_FLOAT, F: x}
	}
	text := func(name, x string) *onnx.AttributeProto {
		return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_STRING, S: []byte(x)}
	}
	const old = "this form of operator set %d is not supported; export with operator set 13 or newer"
	bounds := []*onnx.AttributeProto{ints("starts", 1), ints("ends", 2)}
	for _, c := range []struct {
		version int64
		node    *onnx.NodeProto
		want    string // old: refused
	}{
		{12, node("ReduceSum", "x", "y", ints("axes", 1)), "ReduceSum x [1]"},
		{12, node("Squeeze", "x", "y"), "Squeeze x"},
		{12, node("Unsqueeze", "x", "y", ints("axes", 0, 2)), "Unsqueeze x [0 2]"},
		{12, node("Split", "x", "y z"), "Split x num_outputs=2"}, {12, node("Split", "x", "y z", ints("split", 1, 2)),
			"Split x [1 2]"}, {17, node("Split", "x s", "y z"), "Split x s"},
		{9, node("Slice", "x", "y", bounds...), "Slice x [1] [2]"}, {9, node("Slice", "x", "y", append(bounds,
			ints("axes", 0))...), "Slice x [1] [2] [0]"},
		{10, node("Slice", "x a b", "y"), "Slice x a b"},
		{10, node("Slice", "x", "y", bounds...), "Slice x starts=[1] ends=[2]"},
		{10, node("Pad", "x", "y", ints("pads", 1, 1), number("value", 3)), "Pad x [1 1] 3"},
		{11, node("Pad", "x p", "y"), "Pad x p"}, {10, node("Pad", "x", "y", ints("pads", 1)), "Pad x [1] -"},
		{10, node("Clip", "x", "y", number("max", 6)), "Clip x - 6"}, {11, node("Clip", "x a", "y"), "Clip x a"},
		{17, node("Dropout", "x", "y", number("ratio", 0.5)), "Dropout x"},
		{10, node("Scatter", "x a b", "y"), "ScatterElements x a b"},
		{15, node("RoiAlign", "x a b", "y"), "RoiAlign x a b coordinate_transformation_mode=output_half_pixel"},
		{16, node("RoiAlign", "x a b", "y"), "RoiAlign x a b"},
		{15, node("RoiAlign", "x a b", "y", text("coordinate_transformation_mode", "half_pixel")),
			"RoiAlign x a b coordinate_transformation_mode=half_pixel"},
		{12, node("Softmax", "x", "y", attribute("axis", 1)), "Softmax x axis=-1"}, // the last of [2,3]
		{13, node("Softmax", "x", "y", attribute("axis", 0)), "Softmax x axis=0"},
		{12, node("Softmax", "x", "y", attribute("axis", 0)),
			"Shape x; Flatten x axis=0; Softmax y/matrix axis=-1; Reshape y/result y/shape"},
		{12, node("Softmax", "twice", "y", attribute("axis", -2)),
			"Shape twice; Flatten twice axis=-2; Softmax y/matrix axis=-1; Reshape y/result y/shape"},
		{13, node("BatchNormalization", "x a b c d", "y m v"), old}, {13, node("BatchNormalization", "x a b c d", "y"),
			"BatchNormalization x a b c d"}, {14, node("BatchNormalization", "x a b c d", "y m v"),
			"BatchNormalization x a b c d"},
		{8, node("BatchNormalization", "x a b c d", "y", attribute("spatial", 1)), old},
		{9, node("BatchNormalization", "x a b c d", "y", attribute("spatial", 1)),
			"BatchNormalization x a b c d spatial=1"},
		{9, node("TopK", "x", "y"), old}, {10, node("TopK", "x k", "y"), "TopK x k"},
		{10, node("Resize", "x s", "y"), old}, {11, node("Resize", "x - s", "y"), "Resize x - s"},
		{9, node("Upsample", "x s", "y"), old},
		{18, node("ReduceSum", "x", "y", ints("axes", 1)), "ReduceSum x axes=[1]"},
	} {
		m := model(c.version, c.node)
		m.Graph.ValueInfo = []*onnx.ValueInfoProto{value("twice", float, 2), value("twice", float, 2, 3)}
		err := onnx.Upgrade(m)
		constants, got := map[string]string{}, []string{}
		for _, n := range m.Graph.Node {
			if p, _ := onnx.ConstantOf(n); p != nil {
				if constants[n.Output[0]] = fmt.Sprint(p.Int64Data); p.DataType == int32(float) {
					constants[n.Output[0]] = fmt.Sprint(math.Float32frombits(binary.LittleEndian.Uint32(p.RawData)))
				}
				continue
			}
			parts := []string{n.OpType}
			for _, in := range n.Input {
				parts = append(parts, cmp.Or(constants[in], in, "-"))
			}
			for _, a := range n.Attribute {
				v := map[onnx.AttributeProto_AttributeType]any{onnx.AttributeProto_INT: a.I,
					onnx.AttributeProto_INTS: a.Ints, onnx.AttributeProto_STRING: string(a.S)}[a.Type]
				parts = append(parts, fmt.Sprint(a.Name, "=", v))
			}
			got = append(got, strings.Join(parts, " "))
		}
		s, want := strings.Join(got, "; "), c.want
		if err != nil {
			s = err.Error()[strings.LastIndex(err.Error(), "this form"):]
		}
		if want == old {
			want = fmt.Sprintf(old, c.version)
		}
		if s != want {
			t.Errorf("%s of operator set %d: %s, want %s", c.node.OpType, c.version, s, want)
		}
	}
}
