package graph

import (
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// FixSizes returns the model of a graph for inputs of given shapes, by name. Inputs that are not named keep their
// shapes. Every value that depends on shapes alone is a constant of the result, so that a device computes all operators
// itself and can capture them: it has no Shape, Size or Range of a known size, and a ConstantOfShape is a constant or,
// above maxFolded elements, an Expand. A loop of While with at most maxBodies iterations is written out. The result
// computes the same values, to the last bit, and shares the weights of m.
func FixSizes(model *onnx.ModelProto, shapes map[string][]int) (*onnx.ModelProto, error) {
	weights := model.GetGraph().GetInitializer()
	model = onnx.ShallowCopy(model)
	model.Graph = onnx.ShallowCopy(model.GetGraph())
	model.Graph.Initializer = nil
	model = proto.Clone(model).(*onnx.ModelProto) // reading changes it, except for the weights
	model.Graph.Initializer = slices.Clone(weights)
	for _, in := range model.Graph.Input {
		if shape, ok := shapes[in.Name]; ok {
			if err := fixInput(in, shape); err != nil {
				return nil, err
			}
		}
	}

	for _, v := range slices.Concat(model.Graph.ValueInfo, model.Graph.Output) { // symbols are inferred again
		_, shape := typeOf(v)
		if _, static := shape.Ints(); shape != nil && !static {
			v.GetType().GetTensorType().Shape = nil
		}
	}

	file, err := readModel(model, true)
	if err != nil {
		return nil, err
	}

	roots := convert.Slice(file.Outputs, func(o Output) Node { return o.Node })
	for i, n := range Transform(roots, fold) {
		file.Outputs[i].Node = n
	}

	if file.Graph.err != nil {
		return nil, file.Graph.err
	}

	return file.Model(file.Outputs...)
}

func fixInput(in *onnx.ValueInfoProto, shape []int) error {
	tensorType := in.GetType().GetTensorType()
	if tensorType == nil {
		return fmt.Errorf("input %s is not a tensor", in.Name)
	}

	if tensorType.Shape == nil {
		tensorType.Shape = &onnx.TensorShapeProto{}
		for range shape {
			tensorType.Shape.Dim = append(tensorType.Shape.Dim, &onnx.TensorShapeProto_Dimension{})
		}
	}

	dims := tensorType.Shape.Dim
	if len(dims) != len(shape) {
		return fmt.Errorf("input %s has %d axes, not those of %v", in.Name, len(dims), shape)
	}

	for i, d := range dims {
		n, ok := d.Value.(*onnx.TensorShapeProto_Dimension_DimValue)
		if ok && n.DimValue >= 0 && n.DimValue != int64(shape[i]) {
			return fmt.Errorf("axis %d of input %s is %d, not %d", i, in.Name, n.DimValue, shape[i])
		}
		d.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: int64(shape[i])}
	}

	return nil
}

// maxFolded bounds the elements of a floating value that fold follows.
const maxFolded = 64

// fold is a function for Transform. Equal operators become one.
func fold(op *Op, in []Node) []Node {
	if op.def == nil || len(op.In) == 0 || len(onnx.Subgraphs(op.proto)) > 0 {
		return nil
	}

	if op.Kind == "ReduceSum" && len(in) == 2 && in[1].OK() && len(in[1].Shape()) == 1 && in[1].Shape()[0].Is(0) &&
		op.Attrs.Int("noop_with_empty_axes", 0) == 1 {
		return in[:1]
	}

	n := len(op.Out)
	for op.proto != nil && n > 1 && op.Out[n-1].value.name == "" { // the file omits it
		n--
	}

	out := op.graph.again(op, n, in)
	if out[0].failed() {
		return out
	}

	again := out[0].Op()
	for i, o := range out {
		if o.value.name == "" {
			o.value.name = op.Out[i].value.name
		}
		out[i] = known(o)
	}

	if _, ok := again.Out[0].Shape().Ints(); ok && again.Kind == "ConstantOfShape" && out[0] == again.Out[0] {
		return []Node{op.graph.Apply(Standard, "Expand", nil, op.graph.constantProto(filling(again)), in[0])}
	}

	return out
}

// filling returns the scalar with which ConstantOfShape fills its result.
func filling(op *Op) *onnx.TensorProto {
	if p := op.Attrs.Tensor("value"); p != nil {
		return &onnx.TensorProto{DataType: p.DataType, RawData: onnx.RawData(p)}
	}
	return &onnx.TensorProto{DataType: int32(Float), RawData: make([]byte, 4)}
}

// known returns a constant in place of a value whose elements are known.
func known(node Node) Node {
	size, ok := node.Shape().Ints()
	if !ok {
		return node
	}

	if v := floats(node); len(v) > 0 && len(v) == tensor.Size(size) {
		return node.Graph().Const(tensor.Of(v, size...))
	}

	v, ok := Shape(node.value.content).Ints()
	if !ok {
		return node
	}

	proto := &onnx.TensorProto{DataType: int32(node.DType()),
		Dims: convert.Slice(size, func(d int) int64 { return int64(d) })}
	for _, x := range v {
		switch node.DType() {
		case Int64:
			proto.RawData = binary.LittleEndian.AppendUint64(proto.RawData, uint64(x))
		case Int32:
			proto.RawData = binary.LittleEndian.AppendUint32(proto.RawData, uint32(x))
		case Bool:
			proto.RawData = append(proto.RawData, byte(x))
		default:
			return node
		}
	}

	return node.Graph().constantProto(proto)
}

// floats returns the elements of a float32 value that elementary operators compute from known numbers, or nil. All of
// them round as IEEE 754 says, so that ONNX Runtime computes the same.
func floats(n Node) []float32 {
	op, size := n.Op(), n.Shape().Size()
	if op.Domain != Standard || n.DType() != Float || len(op.In) == 0 || size.N > maxFolded {
		return nil
	}

	a := op.In[0].Numbers()
	if op.Kind == "ConstantOfShape" {
		if a = numbers(filling(op)); len(a) == 1 {
			return slices.Repeat(a, size.N)
		}
	}

	if len(a) == 0 {
		return nil
	}

	switch op.Kind {
	case "Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity":
		return a
	case "Neg":
		return convert.Slice(a, func(x float32) float32 { return -x })
	case "Expand":
		if len(a) == 1 {
			return slices.Repeat(a, size.N)
		}
		return a
	}

	f, b := arithmetic[op.Kind], op.X(1).Numbers()
	if f == nil || len(b) == 0 {
		return nil
	}

	long, short := op.In[0].Shape(), op.In[1].Shape()
	if len(a) < len(b) {
		long, short = short, long
	}

	for len(short) > 0 && short[0].Is(1) {
		short = short[1:]
	}

	if len(short) > len(long) || !slices.Equal(long[len(long)-len(short):], short) {
		return nil // the shorter one does not repeat as a whole
	}

	return convert.Slice(tensor.Indices(max(len(a), len(b))), func(i int) float32 {
		return f(a[i%len(a)], b[i%len(b)])
	})
}

// Numbers returns the elements of an integer or float32 constant if they are few, as float32; otherwise nil.
func (n Node) Numbers() []float32 {
	if !n.OK() {
		return nil
	}

	if l := n.Op().Literal(); l != nil && n.DType() == Float {
		if _, far := l.ExternalPlace(); far || n.Shape().Size().N > maxFolded {
			return nil
		}
		return numbers(&onnx.TensorProto{DataType: int32(Float), RawData: l.Bytes()})
	}

	v, _ := Shape(n.value.content).Ints()
	return convert.Slice(v, func(x int) float32 { return float32(x) })
}

// numbers returns the elements of a float32 tensor.
func numbers(p *onnx.TensorProto) []float32 {
	if DType(p.DataType) != Float {
		return nil
	}

	out := make([]float32, len(p.RawData)/4)
	binary.Decode(p.RawData, binary.LittleEndian, out) // only too few bytes are an error
	return out
}

var arithmetic = map[string]func(a, b float32) float32{
	"Add": func(a, b float32) float32 { return a + b },
	"Sub": func(a, b float32) float32 { return a - b },
	"Mul": func(a, b float32) float32 { return a * b },
	"Div": func(a, b float32) float32 { return a / b },
}
