package graph

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// maxSize bounds one axis, and the elements of one tensor of a file.
const maxSize = 1 << 40

func toInts(v []int64) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

// constantOf gives the content of a Constant node of an ONNX file, nil for other nodes and for kinds of content that no
// operator here looks into.
func constantOf(p *onnx.NodeProto) (*onnx.TensorProto, error) {
	if p.OpType != "Constant" || len(p.Attribute) != 1 {
		return nil, nil
	}
	a := p.Attribute[0]
	t := &onnx.TensorProto{}
	switch a.Name {
	case "value":
		if t = a.T; t == nil {
			return nil, fmt.Errorf("its value is no tensor")
		}
	case "value_int":
		t.DataType, t.RawData = int32(Int64), binary.LittleEndian.AppendUint64(nil, uint64(a.I))
	case "value_float":
		t.DataType, t.RawData = int32(Float), binary.LittleEndian.AppendUint32(nil, math.Float32bits(a.F))
	case "value_ints":
		t.DataType, t.Dims, t.Int64Data = int32(Int64), []int64{int64(len(a.Ints))}, a.Ints
	case "value_floats":
		t.DataType, t.Dims, t.FloatData = int32(Float), []int64{int64(len(a.Floats))}, a.Floats
	default:
		return nil, nil
	}
	return t, checkTensor(t)
}

// checkTensor refuses a tensor whose inline data does not match its dimensions.
func checkTensor(t *onnx.TensorProto) error {
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 || d > maxSize || d > 0 && n > maxSize/d {
			return fmt.Errorf("tensor %q: dimensions %v are out of range", t.Name, t.Dims)
		}
		n *= d
	}
	if len(t.Dims) > MaxRank {
		return fmt.Errorf("tensor %q: %d dimensions; at most %d are supported", t.Name, len(t.Dims), MaxRank)
	}
	if t.DataLocation == onnx.TensorProto_EXTERNAL {
		return nil
	}
	width, typed := int64(0), len(t.Int32Data)
	switch DType(t.DataType) {
	case Float:
		width, typed = 4, len(t.FloatData)
	case Double:
		width, typed = 8, len(t.DoubleData)
	case Int64:
		width, typed = 8, len(t.Int64Data)
	case onnx.TensorProto_UINT32:
		width, typed = 4, len(t.Uint64Data)
	case onnx.TensorProto_UINT64:
		width, typed = 8, len(t.Uint64Data)
	case Int32:
		width = 4
	case Bool, Uint8, onnx.TensorProto_INT8:
		width = 1
	case Half, onnx.TensorProto_BFLOAT16, onnx.TensorProto_INT16, onnx.TensorProto_UINT16:
		width = 2
	default:
		return nil // strings, complex numbers, types younger than this program
	}
	switch {
	case len(t.RawData) > 0 && int64(len(t.RawData)) != n*width:
		return fmt.Errorf("tensor %q: %d bytes for dimensions %v", t.Name, len(t.RawData), t.Dims)
	case len(t.RawData) == 0 && int64(typed) != n:
		return fmt.Errorf("tensor %q: %d elements for dimensions %v", t.Name, typed, t.Dims)
	}
	return nil
}

// captures lists the values outside that the graphs among a node's attributes read. A value that has another name than
// they read it by gets an Identity of that name.
func (s *scope) captures(p *onnx.NodeProto) ([]Node, error) {
	var out []Node
	for _, name := range freeNames(p) {
		n, ok := s.get(name)
		if !ok || !n.OK() {
			return nil, fmt.Errorf("its inner graph reads %q, which is made by no earlier node", name)
		}
		if n.v.name != name {
			op := n.Graph().add(lookup(Standard, "Identity"), Standard, "Identity", nil, 1, []Node{n})
			if err := infer(op); err != nil {
				return nil, err
			}
			n = op.Out[0]
			n.v.name, s.names[name] = name, n
		}
		out = append(out, n)
	}
	for _, g := range innerGraphs(p) {
		if q := outdated(g, s.version); q != nil {
			return nil, fmt.Errorf("its inner graph holds a %s of operator set %d; export with operator set %d or "+
				"newer", q.OpType, s.version, Opset)
		}
	}
	return out, nil
}

func innerGraphs(p *onnx.NodeProto) []*onnx.GraphProto {
	var out []*onnx.GraphProto
	for _, a := range p.Attribute {
		if a.G != nil {
			out = append(out, a.G)
		}
		out = append(out, a.Graphs...)
	}
	return out
}

// freeNames lists, each once, the names that the inner graphs of p use and do not make themselves.
func freeNames(p *onnx.NodeProto) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, g := range innerGraphs(p) {
		made := map[string]bool{}
		read := func(name string) {
			if !made[name] && !seen[name] {
				seen[name], out = true, append(out, name)
			}
		}
		for _, v := range g.Input {
			made[v.Name] = true
		}
		for _, t := range g.Initializer {
			made[t.Name] = true
		}
		for _, q := range g.Node {
			for _, name := range append(freeNames(q), q.Input...) {
				read(name)
			}
			for _, name := range q.Output {
				made[name] = true
			}
		}
		for _, v := range g.Output {
			read(v.Name)
		}
	}
	return out
}

// outdated finds a node of an inner graph that upgrade would have to rewrite.
func outdated(g *onnx.GraphProto, version int64) *onnx.NodeProto {
	for _, p := range g.Node {
		q := proto.Clone(p).(*onnx.NodeProto)
		in, err := (&File{Graph: New()}).upgrade(q, make([]Node, len(p.Input)), version)
		if err != nil || len(in) != len(p.Input) || !proto.Equal(p, q) {
			return p
		}
		for _, inner := range innerGraphs(p) {
			if bad := outdated(inner, version); bad != nil {
				return bad
			}
		}
	}
	return nil
}
