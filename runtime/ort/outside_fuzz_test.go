package ort_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
)

func graphAttr(name string, g *builder) *onnx.AttributeProto {
	g.Name = name
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_GRAPH, G: &g.GraphProto}
}

func intsAttr(name string, v ...int64) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INTS, Ints: v}
}

func (b *builder) integers(name string, v ...int64) *builder {
	b.Initializer = append(b.Initializer, &onnx.TensorProto{Name: name, DataType: int32(i64), Int64Data: v,
		Dims: []int64{int64(len(v))}})
	return b
}

// strangers are well-formed models with the operators that runtime/onnx checks: loops, branches, functions, counts and
// sizes of blocks, elements of four bits, fused operators of ONNX Runtime.
func strangers(t testing.TB) []*onnx.ModelProto {
	x := func() *builder { return (&builder{}).in("x", f32, dims{1, 4, 2, 6}) }
	boolean := onnx.TensorProto_BOOL
	body := (&builder{}).in("turn", i64, dims{}).in("go", boolean, dims{}).in("h", f32, nil).
		node("Identity", []string{"go"}, "on").node("Neg", []string{"h"}, "r").out("on", boolean, dims{}).
		out("r", f32, nil)
	branch := (&builder{}).node("Neg", []string{"x"}, "q").out("q", f32, nil)
	loop := x().in("yes", boolean, dims{}).integers("n", 2).node("Loop", []string{"n", "yes", "x"}, "l",
		graphAttr("body", body)).node("If", []string{"yes"}, "y", graphAttr("then_branch", branch),
		graphAttr("else_branch", branch)).out("y", f32, nil)
	shapes := x().integers("s", 1, 8, 6).integers("i", 1, 0).node("DepthToSpace", []string{"x"}, "d",
		intAttr("blocksize", 2)).node("SpaceToDepth", []string{"d"}, "e", intAttr("blocksize", 2)).
		node("Reshape", []string{"e", "s"}, "r").node("Gather", []string{"r", "i"}, "g", intAttr("axis", 1)).
		node("Transpose", []string{"g"}, "p", intsAttr("perm", 0, 2, 1)).node("Split", []string{"p"}, "y",
		intAttr("num_outputs", 1), intAttr("axis", -1)).out("y", f32, nil)
	conv := x().constant("w", make([]float32, 32), 2, 4, 2, 2).node("Conv", []string{"x", "w"}, "c",
		intsAttr("kernel_shape", 2, 2), intsAttr("pads", 1, 1, 0, 0), intsAttr("strides", 1, 2)).
		node("MaxPool", []string{"c"}, "m", intsAttr("kernel_shape", 2, 2)).out("m", f32, nil)
	fused := (&builder{}).in("x", f32, dims{1, 3, 4}).constant("w", make([]float32, 48), 4, 12).
		constant("b", make([]float32, 12), 12).constant("g", make([]float32, 4), 4).
		node("Attention", []string{"x", "w", "b"}, "a", intAttr("num_heads", 2), intsAttr("qkv_hidden_sizes", 4, 4, 4)).
		node("SkipLayerNormalization", []string{"x", "a", "g"}, "y").out("y", f32, nil)
	four := (&builder{}).in("x", f32, dims{2, 3}).constant("s", []float32{1}).
		node("DequantizeLinear", []string{"w", "s"}, "f").node("Mul", []string{"x", "f"}, "y").out("y", f32, nil)
	four.Initializer = append(four.Initializer, &onnx.TensorProto{Name: "w", Dims: []int64{2, 3},
		DataType: int32(onnx.TensorProto_UINT4), RawData: []byte{1, 2, 3}})
	call := x().node("F", []string{"x"}, "y", intAttr("as", int64(onnx.TensorProto_FLOAT))).out("y", f32, nil)
	var out []*onnx.ModelProto
	for _, b := range []*builder{loop, shapes, conv, fused, four, call} {
		m := b.model(t)
		m.OpsetImport = []*onnx.OperatorSetIdProto{{Version: 21}, {Domain: onnx.Microsoft, Version: 1}, {Domain: "own",
			Version: 1}}
		m.Functions = []*onnx.FunctionProto{{Name: "F", Domain: "own", Input: []string{"a"}, Output: []string{"c"},
			Attribute: []string{"as"}, OpsetImport: m.OpsetImport[:1], Node: []*onnx.NodeProto{{OpType: "Cast",
				Input: []string{"a"}, Output: []string{"c"}, Attribute: []*onnx.AttributeProto{{Name: "to",
					Type: onnx.AttributeProto_INT, RefAttrName: "as"}}}}}}
		for _, n := range m.Graph.Node {
			switch n.OpType {
			case "Attention", "SkipLayerNormalization":
				n.Domain = onnx.Microsoft
			case "F":
				n.Domain = "own"
			}
		}
		out = append(out, m)
	}
	return out
}

// FuzzStrangers checks that ONNX Runtime compiles each model that onnx.Check accepts, or rejects it with an error of
// one line, and never ends the process. One field of a model is set to any number or name, and one node loses its last
// inputs.
func FuzzStrangers(f *testing.F) {
	models := strangers(f)
	for which, m := range models {
		for i := range onnxtest.Fields(m) {
			f.Add(uint8(which), uint16(i), onnxtest.Numbers[i%len(onnxtest.Numbers)], "y", uint8(0))
		}
		f.Add(uint8(which), uint16(0), int64(0), "g", uint8(1))
	}
	f.Fuzz(func(t *testing.T, which uint8, field uint16, number int64, name string, cut uint8) {
		orttest.RequireCPU(t)
		m := proto.Clone(models[int(which)%len(models)]).(*onnx.ModelProto)
		list := onnxtest.Fields(m)
		if at := list[int(field)%len(list)]; at.Text {
			at.Name(name)
		} else {
			at.Number(number)
		}
		n := m.Graph.Node[int(field)%len(m.Graph.Node)]
		n.Input = n.Input[:max(0, len(n.Input)-int(cut))]
		b, err := onnx.Marshal(m)
		if err != nil {
			return // a name that is not UTF-8
		}
		if m, err = onnx.Unmarshal(b); err != nil {
			return
		}
		s, err := ort.NewSession(m, ort.Options{OptLevel: ort.OptBasic})
		switch {
		case err == nil:
			s.Close()
		case strings.ContainsAny(err.Error(), "\n\r"):
			t.Errorf("not one line: %q", err)
		}
	})
}

// The models that FuzzStrangers changes are accepted and compiled without a change.
func TestStrangersAreWell(t *testing.T) {
	for _, m := range strangers(t) {
		b, err := onnx.Marshal(m)
		if err == nil {
			m, err = onnx.Unmarshal(b)
		}
		goldentest.NoError(t, err)
		open(t, m, ort.Options{})
	}
}
