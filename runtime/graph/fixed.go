package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// FixSizes returns the model of a graph for inputs of given shapes, by name. Inputs that are not named keep their
// shapes. Every value that depends on shapes alone is a constant of the result, so that a device computes all operators
// itself and can capture them: it has no Shape, Size or Range of a known size, and a ConstantOfShape is an Expand. The
// result computes the same values, to the last bit.
func FixSizes(m *onnx.ModelProto, shapes map[string][]int) (*onnx.ModelProto, error) {
	m = proto.Clone(m).(*onnx.ModelProto) // ReadModel changes it
	for _, in := range m.GetGraph().GetInput() {
		if shape, ok := shapes[in.Name]; ok {
			if err := fixInput(in, shape); err != nil {
				return nil, err
			}
		}
	}
	for _, v := range slices.Concat(m.Graph.ValueInfo, m.Graph.Output) { // shapes are inferred again
		if t := v.GetType().GetTensorType(); t != nil {
			t.Shape = nil
		}
	}
	f, err := ReadModel(m)
	if err != nil {
		return nil, err
	}
	roots := make([]Node, len(f.Outputs))
	for i, o := range f.Outputs {
		roots[i] = o.Node
	}
	k := &folder{numbers: map[Node][]float32{}}
	for i, n := range Transform(roots, k.fold) {
		f.Outputs[i].Node = n
	}
	if f.Graph.err != nil {
		return nil, f.Graph.err
	}
	return Model(f.Outputs...)
}

func fixInput(in *onnx.ValueInfoProto, shape []int) error {
	dims := in.GetType().GetTensorType().GetShape().GetDim()
	if len(dims) != len(shape) {
		return fmt.Errorf("input %s has %d axes, not those of %v", in.Name, len(dims), shape)
	}
	for i, d := range dims {
		if n, ok := d.Value.(*onnx.TensorShapeProto_Dimension_DimValue); ok && n.DimValue != int64(shape[i]) {
			return fmt.Errorf("axis %d of input %s is %d, not %d", i, in.Name, n.DimValue, shape[i])
		}
		d.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: int64(shape[i])}
	}
	return nil
}

// maxFolded bounds the elements of a floating value that folder follows. Means divide by one number.
const maxFolded = 64

// folder replaces values that follow from shapes by constants.
type folder struct {
	numbers map[Node][]float32 // elements of floating values that are known
}

// fold is the function of Transform.
func (k *folder) fold(op *Op, in []Node) []Node {
	if op.IsInput() || len(op.Out) != 1 || len(op.In) == 0 {
		return nil
	}
	out := op.g.again(op, 1, in)
	n := out[0]
	if n.failed() {
		return out
	}
	if c, ok := known(n); ok {
		return []Node{c}
	}
	size, _ := n.Shape().Ints()
	if v := k.floats(n.Op()); v != nil && len(v) == tensor.Size(size) {
		c := op.g.Const(tensor.Of(v, size...))
		k.numbers[c] = v
		return []Node{c}
	}
	if shape := op.X(0); op.Domain == Standard && op.Kind == "ConstantOfShape" && shape.OK() {
		value := &onnx.TensorProto{DataType: int32(Float), RawData: make([]byte, 4)}
		if p := op.Attrs.Tensor("value"); p != nil {
			value = &onnx.TensorProto{DataType: p.DataType, RawData: onnx.RawData(p)}
		}
		return []Node{op.g.Apply(Standard, "Expand", nil, op.g.constantProto(value), in[0])}
	}
	return nil
}

// known returns the constant of an integer or boolean value whose elements are known.
func known(n Node) (Node, bool) {
	size, ok := n.Shape().Ints()
	if !ok || n.v.content == nil {
		return n, false
	}
	v := make([]int64, len(n.v.content))
	var raw []byte
	for i, d := range n.v.content {
		if !d.Static() {
			return n, false
		}
		switch v[i] = int64(d.N); n.DType() {
		case Int32:
			raw = binary.LittleEndian.AppendUint32(raw, uint32(d.N))
		case Bool:
			raw = append(raw, byte(d.N))
		}
	}
	switch n.DType() {
	case Int64:
		return n.Graph().Const(tensor.OfInts(v, size...)), true
	case Int32, Bool:
		p := &onnx.TensorProto{DataType: int32(n.DType()), RawData: raw}
		for _, d := range size {
			p.Dims = append(p.Dims, int64(d))
		}
		return n.Graph().constantProto(p), true
	}
	return n, false
}

// floats returns the elements of a float32 value that elementary operators compute from known numbers, or nil.
func (k *folder) floats(op *Op) []float32 {
	n := op.Out[0]
	size, ok := n.Shape().Ints()
	if op.Domain != Standard || n.DType() != Float || !ok || tensor.Size(size) > maxFolded || tensor.Size(size) == 0 {
		return nil
	}
	of := func(i int) []float32 {
		if x := op.X(i); x.OK() {
			return k.number(x)
		}
		return nil
	}
	a := of(0)
	switch {
	case a == nil:
		return nil
	case op.Kind == "Cast" || op.Kind == "Reshape" || op.Kind == "Unsqueeze" || op.Kind == "Squeeze":
		return a
	case unary[op.Kind] != nil:
		return mapped(len(a), func(i int) float32 { return unary[op.Kind](a[i]) })
	}
	b := of(1)
	if f := binaryOps[op.Kind]; f != nil && b != nil && (len(a) == 1 || len(b) == 1 || len(a) == len(b)) {
		return mapped(max(len(a), len(b)), func(i int) float32 { return f(a[i%len(a)], b[i%len(b)]) })
	}
	return nil
}

// number returns the known elements of an integer or float32 value.
func (k *folder) number(n Node) []float32 {
	if v := k.numbers[n]; v != nil {
		return v
	}
	if l := n.Op().Literal(); l != nil && n.DType() == Float && l.External == nil {
		b := l.Bytes()
		if len(b) == 0 || len(b) > 4*maxFolded {
			return nil
		}
		return mapped(len(b)/4, func(i int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		})
	}
	v, ok := Shape(n.v.content).Ints()
	if !ok || n.v.content == nil {
		return nil
	}
	return mapped(len(v), func(i int) float32 { return float32(v[i]) })
}

func mapped(n int, f func(i int) float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// Operators of single numbers.
var (
	unary = map[string]func(a float32) float32{
		"Neg":        func(a float32) float32 { return -a },
		"Reciprocal": func(a float32) float32 { return 1 / a },
		"Sqrt":       func(a float32) float32 { return float32(math.Sqrt(float64(a))) },
	}
	binaryOps = map[string]func(a, b float32) float32{
		"Add": func(a, b float32) float32 { return a + b },
		"Sub": func(a, b float32) float32 { return a - b },
		"Mul": func(a, b float32) float32 { return a * b },
		"Div": func(a, b float32) float32 { return a / b },
	}
)
