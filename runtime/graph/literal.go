package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// Literal is the content of a constant: a tensor in memory, or a tensor of an ONNX file, which may lie in another file.
type Literal struct {
	Tensor *tensor.Tensor
	Proto  *onnx.TensorProto
}

// External is the place of raw elements in a file beside the graph.
type External = onnx.External

// Const returns a constant in memory. The tensor must not change afterwards.
func (g *Graph) Const(t *tensor.Tensor) Node {
	if t.IsInt() {
		return g.constant(&Literal{Tensor: t}, Int64, Static(t.Shape...), hashTensor(t))
	}
	return g.constant(&Literal{Tensor: t}, Float, Static(t.Shape...), hashTensor(t))
}

// Weight returns a constant whose elements stay in a file. dims may be any shape of the same size.
func (g *Graph) Weight(name string, dtype DType, e External, dims ...int) Node {
	p := &onnx.TensorProto{DataType: int32(dtype), Dims: convert.Slice(dims, func(d int) int64 { return int64(d) })}
	onnx.SetExternal(p, e)
	n := g.tensorProto(p, fmt.Sprintf("ext:%s@%d+%d", e.File, e.Offset, e.Length))
	if n.value.name == "" {
		n.value.name = name
	}
	return n
}

// Ints returns a constant vector of integers.
func (g *Graph) Ints(v ...int) Node {
	d := convert.Slice(v, func(x int) int64 { return int64(x) })
	return g.Const(tensor.OfInts(d, len(d)))
}

// Scalar64 returns an integer constant of rank 0.
func (g *Graph) Scalar64(v int) Node { return g.Const(tensor.OfInts([]int64{int64(v)})) }

// Scalar returns a float constant of rank 0.
func (g *Graph) Scalar(v float64) Node { return g.Const(tensor.Scalar(float32(v))) }

// ScalarLike returns a constant of rank 0 with the element type of n, a floating type.
func (n Node) ScalarLike(v float64) Node {
	g := n.Graph()
	if n.value.dtype == Double {
		raw := binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
		return g.constantProto(&onnx.TensorProto{DataType: int32(Double), RawData: raw})
	}

	c := g.Scalar(v)
	if n.value.dtype != Float && n.value.dtype != onnx.TensorProto_UNDEFINED {
		return c.Cast(n.value.dtype)
	}

	return c
}

func (g *Graph) constantProto(p *onnx.TensorProto) Node {
	return g.tensorProto(p, fmt.Sprintf("raw:%x", p.RawData))
}

// imported returns the constant of a tensor in a file. Equal tensors stay separate constants, because both keep their
// names.
func (g *Graph) imported(p *onnx.TensorProto, name string) Node {
	n := g.tensorProto(p, fmt.Sprintf("proto:%p", p))
	n.value.name = name
	return n
}

func (g *Graph) tensorProto(p *onnx.TensorProto, key string) Node {
	dims := toInts(p.Dims)
	n := g.constant(&Literal{Proto: p}, DType(p.DataType), Static(dims...), key)
	if n.value.content == nil {
		n.value.content, _ = TensorInts(p)
	}
	return n
}

func (g *Graph) constant(literal *Literal, dtype DType, shape Shape, key string) Node {
	key = fmt.Sprintf("const:%v%v %s", dtype, shape, key)
	if op, ok := g.intern[key]; ok {
		return op.Out[0]
	}

	op := g.add(constantDef, Standard, constantDef.Kind, nil, 1, nil)
	op.data = literal
	v := op.Out[0].value
	v.dtype, v.shape = dtype, shape
	if literal.Tensor != nil && literal.Tensor.IsInt() && len(shape) <= 1 && len(literal.Tensor.Ints) <= MaxContent {
		v.content = convert.Slice(literal.Tensor.Ints, func(x int64) Dim { return StaticDim(int(x)) })
	}

	g.intern[key] = op
	return op.Out[0]
}

func hashTensor(t *tensor.Tensor) string {
	if t.Bytes() > 1<<16 {
		if t.IsInt() {
			return fmt.Sprintf("at:%p", t.Ints)
		}
		return fmt.Sprintf("at:%p", t.Data)
	}
	return fmt.Sprintf("%x", sha256.Sum256(rawBytes(t)))
}

func rawBytes(t *tensor.Tensor) []byte {
	b, _ := binary.Append(make([]byte, 0, t.Bytes()), binary.LittleEndian, t.Ints) // slices of numbers cannot fail
	b, _ = binary.Append(b, binary.LittleEndian, t.Data)
	return b
}

// elements returns the number of elements of a tensor in a file, or a number above limit.
func elements(p *onnx.TensorProto, limit int64) int64 {
	n := int64(1)
	for _, d := range p.Dims {
		if n *= d; d < 0 || d > limit || n > limit {
			return limit + 1
		}
	}
	return n
}

// TensorInts reads the elements of an int64, int32 or boolean tensor of a file, if they are inline and few.
func TensorInts(p *onnx.TensorProto) ([]Dim, bool) {
	n, width := elements(p, MaxContent), map[DType]int{Bool: 1, Int32: 4, Int64: 8}[DType(p.DataType)]
	if n > MaxContent || width == 0 || len(p.Int32Data)+len(p.Int64Data) > MaxContent {
		return nil, false
	}

	raw := (&Literal{Proto: p}).Bytes()
	if len(raw) != int(n)*width {
		return nil, false
	}

	out := make([]Dim, 0, n)
	for ; len(raw) > 0; raw = raw[width:] {
		switch width {
		case 1:
			out = append(out, BoolDim(raw[0] != 0))
		case 4:
			out = append(out, StaticDim(int(int32(binary.LittleEndian.Uint32(raw)))))
		default:
			out = append(out, StaticDim(int(binary.LittleEndian.Uint64(raw))))
		}
	}

	return out, true
}

// IsScalar reports whether the literal is a single inline number or boolean of this value.
func (l *Literal) IsScalar(value float64) bool {
	if t := l.Tensor; t != nil {
		return len(t.Data) == 1 && float64(t.Data[0]) == value || len(t.Ints) == 1 && float64(t.Ints[0]) == value
	}

	proto := l.Proto
	if proto == nil || elements(proto, 1) != 1 {
		return false
	}

	switch b := l.Bytes(); {
	case DType(proto.DataType) == Float && len(b) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) == value
	case DType(proto.DataType) == Double && len(b) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)) == value
	}

	d, ok := TensorInts(proto)
	return ok && float64(d[0].N) == value
}

// ExternalPlace returns the place of a constant's elements in a file; ok is false for a constant in memory.
func (l *Literal) ExternalPlace() (e External, ok bool) {
	if !onnx.IsExternal(l.Proto) {
		return External{}, false
	}

	e, err := onnx.ExternalOf(l.Proto)
	return e, err == nil
}

// Bytes returns the elements of a constant in memory, in row order, little-endian, in their own type; nil for a
// constant in a file.
func (l *Literal) Bytes() []byte {
	if l.Tensor != nil {
		return rawBytes(l.Tensor)
	}
	if l.Proto == nil {
		return nil
	}
	return onnx.RawData(l.Proto)
}
