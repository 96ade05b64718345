package exported_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// An image tower that rounds activations computes features within the resolution of 8 bits of PyTorch's features of the
// original tower; pixels have no gradient through it, and the error names the operator.
func TestRoundedImageTower(t *testing.T) {
	mayRun(t)
	dir := copyLayout(t, "vit")
	rounded := map[string]int{}
	changed(t, dir, "image.onnx", func(m *onnx.ModelProto) {
		for _, n := range slices.Clone(m.Graph.Node) {
			if n.OpType == "Conv" || n.OpType == "MatMul" && initializer(m, n.Input[1]) != nil {
				round(m, n)
				rounded[n.OpType]++
			}
		}
	})
	if rounded["ConvInteger"] != 1 || rounded["MatMulInteger"] < 6 {
		t.Fatal(rounded)
	}
	b, want := openBundle(t, dir), orttest.Golden(t, layouts+"/vit/golden.safetensors")
	model := bundletest.ImageModel(t, b)
	out, _ := orttest.RunFixed(t, model, b.Dir, tensor.Map{bundle.PixelsInput: want["pixels"]}) // no GPU rounds so
	got := unitRows(out[bundle.ImageOutput])
	got.Axpy(-1, want["image"])
	if d := got.MaxAbs(); d > 0.1 || d < 1e-5 || !b.RoundsImage {
		t.Errorf("off by %g, rounds %v", d, b.RoundsImage)
	}
	g := graph.New()
	pixels := g.Input("pixels", graph.Float, graph.Static(1, 3, 16, 16))
	image, _, err := b.Image(g, pixels, clip.VisionPrompts{})
	goldentest.NoError(t, err)
	_, err = grad.Of(image.L2Normalize().Sum(), pixels)
	goldentest.WantErrorOf(t, "a gradient through rounding", err, "DynamicQuantizeLinear (node")
	_, _, err = b.Image(g, pixels, clip.VisionPrompts{Tokens: g.Input("tokens", graph.Float, graph.Static(1, 12))})
	goldentest.WantErrorOf(t, "prompt tokens", err, "supports only prompts of pixels")
}

func initializer(m *onnx.ModelProto, name string) *onnx.TensorProto {
	i := slices.IndexFunc(m.Graph.Initializer, func(t *onnx.TensorProto) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return m.Graph.Initializer[i]
}

// round converts a product with constant weights to one of integers, as ONNX Runtime's dynamic quantisation writes it:
// both factors in 8 bits, the product in 32, and the two scales after it.
func round(m *onnx.ModelProto, n *onnx.NodeProto) {
	w := initializer(m, n.Input[1])
	raw, largest := onnx.RawData(w), float32(0)
	number := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])) }
	for i := range len(raw) / 4 {
		largest = max(largest, float32(math.Abs(float64(number(i)))))
	}
	id, q := n.Output[0]+"/", make([]byte, len(raw)/4)
	for i := range q {
		q[i] = byte(128 + math.Round(float64(number(i)/largest*127)))
	}
	scale := binary.LittleEndian.AppendUint32(nil, math.Float32bits(largest/127))
	u8 := int32(onnx.TensorProto_UINT8)
	m.Graph.Initializer = append(m.Graph.Initializer,
		&onnx.TensorProto{Name: id + "q", Dims: w.Dims, DataType: u8, RawData: q},
		&onnx.TensorProto{Name: id + "zero", DataType: u8, RawData: []byte{128}},
		&onnx.TensorProto{Name: id + "scale", DataType: int32(onnx.TensorProto_FLOAT), RawData: scale})
	node := func(kind, out string, in ...string) *onnx.NodeProto {
		return &onnx.NodeProto{OpType: kind, Name: id + kind, Input: in, Output: []string{out}}
	}
	first := node("DynamicQuantizeLinear", id+"x", n.Input[0])
	first.Output = []string{id + "x", id + "s", id + "z"}
	cast := node("Cast", id+"float", id+"int")
	cast.Attribute = []*onnx.AttributeProto{{Name: "to", Type: onnx.AttributeProto_INT,
		I: int64(onnx.TensorProto_FLOAT)}}
	rest := []*onnx.NodeProto{cast, node("Mul", id+"scales", id+"s", id+"scale"), node("Mul", n.Output[0], id+"float",
		id+"scales")}
	at := slices.Index(m.Graph.Node, n)
	n.OpType, n.Name = n.OpType+"Integer", id+n.OpType+"Integer"
	n.Input, n.Output = []string{id + "x", id + "q", id + "z", id + "zero"}, []string{id + "int"}
	m.Graph.Node = slices.Insert(m.Graph.Node, at+1, rest...)
	m.Graph.Node = slices.Insert(m.Graph.Node, at, first)
}
