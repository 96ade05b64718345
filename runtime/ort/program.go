package ort

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// program is a model made ready for ONNX Runtime: every native input and output is float32 or int64.
type program struct {
	name            string
	inputs, outputs []Port
	native          []string // names of the compiled graph's inputs, in the order of inputs
	results         []result // where each of outputs comes from
	nativeOutputs   []string
	model           []byte
	weights         string // folder of the external data, "" when there is none
}

// result tells where an output is found among the native outputs; shape is -1 unless the output was flattened.
type result struct{ value, shape int }

// borderName is the name that the graph's border uses for a converted value; graphs have no such names of their own.
func borderName(what, name string) string { return "promptfed/" + what + "/" + name }

// prepare reads a model, describes it, and puts the conversions at its border. The bytes of a model that needs none are
// used as they are.
func prepare(model []byte, o Options) (*program, error) {
	m := &onnx.ModelProto{}
	if err := proto.Unmarshal(model, m); err != nil {
		return nil, fmt.Errorf("ort: the model is not an ONNX file: %s", oneLine(err))
	}
	g := m.GetGraph()
	if g == nil {
		return nil, fmt.Errorf("ort: the model is not an ONNX file: it has no graph")
	}
	p := &program{name: g.GetName(), model: model}
	changed, err := p.selectOutputs(g, o.Outputs)
	if err != nil {
		return nil, err
	}
	for _, border := range []func(*onnx.GraphProto) (bool, error){p.adaptInputs, p.adaptOutputs} {
		c, err := border(g)
		if err != nil {
			return nil, err
		}
		changed = changed || c
	}
	c, err := p.locateWeights(m, o.WeightsDir)
	if err != nil {
		return nil, err
	}
	if changed || c {
		if p.model, err = proto.Marshal(m); err != nil {
			return nil, p.errorf("writing the adapted model: %s", oneLine(err))
		}
	}
	return p, nil
}

func (p *program) errorf(format string, args ...any) error {
	return fmt.Errorf("ort: graph %q: "+format, append([]any{p.name}, args...)...)
}

func (p *program) selectOutputs(g *onnx.GraphProto, names []string) (changed bool, err error) {
	if len(names) == 0 {
		return false, nil
	}
	var keep, known []*onnx.ValueInfoProto
	known = g.GetOutput()
	for _, name := range names {
		i := slices.IndexFunc(known, func(v *onnx.ValueInfoProto) bool { return v.GetName() == name })
		if i < 0 {
			return false, p.errorf("no output %q to keep; it has %s", name, valueNames(known))
		}
		keep = append(keep, known[i])
	}
	g.Output = keep
	return true, nil
}

func (p *program) adaptInputs(g *onnx.GraphProto) (changed bool, err error) {
	constant := map[string]bool{}
	for _, t := range g.GetInitializer() {
		constant[t.GetName()] = true
	}
	var casts []*onnx.NodeProto
	for _, v := range g.GetInput() {
		if constant[v.GetName()] {
			continue
		}
		port, err := portOf(v)
		if err != nil {
			return false, p.errorf("input %s", err)
		}
		name := port.Name
		if kind := kindOf(port.Type); kind != port.Type {
			name = borderName("input", port.Name)
			casts = append(casts, castNode(name, port.Name, port.Type))
			v.Name, v.GetType().GetTensorType().ElemType = name, int32(kind)
		}
		p.inputs, p.native = append(p.inputs, port), append(p.native, name)
	}
	if len(p.inputs) == 0 {
		return false, p.errorf("it has no inputs, so there is nothing to run")
	}
	g.Node = append(casts, g.GetNode()...)
	return len(casts) > 0, nil
}

func (p *program) adaptOutputs(g *onnx.GraphProto) (changed bool, err error) {
	var native []*onnx.ValueInfoProto
	for _, v := range g.GetOutput() {
		port, err := portOf(v)
		if err != nil {
			return false, p.errorf("output %s", err)
		}
		kind, name, where := kindOf(port.Type), port.Name, result{value: len(native), shape: -1}
		if kind != port.Type {
			name = borderName("output", port.Name)
			g.Node = append(g.Node, castNode(port.Name, name, kind))
		}
		if port.Unranked {
			flat, shape := borderName("flat", port.Name), borderName("shape", port.Name)
			g.Node = append(g.Node, flattenNodes(g, name, flat, shape)...)
			native = append(native, vectorInfo(flat, kind), vectorInfo(shape, onnx.TensorProto_INT64))
			where.shape = where.value + 1
		} else if name != port.Name {
			value := proto.Clone(v).(*onnx.ValueInfoProto)
			value.Name, value.GetType().GetTensorType().ElemType = name, int32(kind)
			native = append(native, value)
		} else {
			native = append(native, v)
		}
		changed = changed || native[where.value] != v
		p.outputs, p.results = append(p.outputs, port), append(p.results, where)
	}
	if len(native) == 0 {
		return false, p.errorf("it has no outputs, so there is nothing to run")
	}
	g.Output = native
	for _, v := range native {
		p.nativeOutputs = append(p.nativeOutputs, v.GetName())
	}
	return changed, nil
}

func castNode(from, to string, want onnx.TensorProto_DataType) *onnx.NodeProto {
	return &onnx.NodeProto{OpType: "Cast", Name: "promptfed/cast/" + from, Input: []string{from}, Output: []string{to},
		Attribute: []*onnx.AttributeProto{{Name: "to", Type: onnx.AttributeProto_INT, I: int64(want)}}}
}

// flattenNodes compute the shape of value and its elements in one axis, which carries values of rank 0 too.
func flattenNodes(g *onnx.GraphProto, value, flat, shape string) []*onnx.NodeProto {
	all := borderName("all", value)
	g.Initializer = append(g.Initializer, &onnx.TensorProto{Name: all, Dims: []int64{1},
		DataType: int32(onnx.TensorProto_INT64), Int64Data: []int64{-1}})
	return []*onnx.NodeProto{
		{OpType: "Shape", Name: shape, Input: []string{value}, Output: []string{shape}},
		{OpType: "Reshape", Name: flat, Input: []string{value, all}, Output: []string{flat}},
	}
}

func vectorInfo(name string, kind onnx.TensorProto_DataType) *onnx.ValueInfoProto {
	return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{TensorType: &onnx.TypeProto_Tensor{
		ElemType: int32(kind), Shape: &onnx.TensorShapeProto{Dim: []*onnx.TensorShapeProto_Dimension{{}}}}}}}
}

func valueNames(values []*onnx.ValueInfoProto) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.GetName()
	}
	return strings.Join(names, ", ")
}
