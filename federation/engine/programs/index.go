package programs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/engine/client"
	"promptfed/federation/method"
	"promptfed/runtime/onnx"
)

// File is the name of the index in a folder of programs.
const File = "programs.json"

// version is that of the index.
const version = 1

// Index is programs.json.
type Index struct {
	Version   int                 `json:"version"`
	Backbones map[string]Backbone `json:"backbones"`
	Programs  []Program           `json:"programs"` // in the order in which a run uses them first
}

// find returns the number of the program in whose place a file stands; -1 for none.
func (x *Index) find(backbone, built string) int {
	return slices.IndexFunc(x.Programs, func(p Program) bool { return p.Built == built && p.Backbone == backbone })
}

// Text is a table of the programs for people.
func (x Index) Text() string {
	var b strings.Builder
	for _, p := range x.Programs {
		fmt.Fprintf(&b, "%s (%s)\n", p.File, p.Kind)
		for _, side := range []struct {
			what   string
			values []Value
		}{{"in ", p.Inputs}, {"out", p.Outputs}} {
			for _, v := range side.values {
				fmt.Fprintf(&b, "    %s  %s %s %v\n", side.what, v.Name, v.DType, v.Shape)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Backbones)) {
		fmt.Fprintf(&b, "weights of %s: %s\n", name, x.Backbones[name].Weights)
	}
	return b.String()
}

// Backbone says where the weights of programs are.
type Backbone struct {
	// Weights is the folder that the names of external data in the programs are relative to.
	Weights string `json:"weights"`
	Digest  string `json:"digest"` // of the backbone's files
}

// Program describes one file.
type Program struct {
	File     string      `json:"file"`               // with / below the folder
	Kind     client.Kind `json:"kind"`               // what it computes
	Backbone string      `json:"backbone,omitempty"` // empty on the server
	// Built is the SHA-256 of the graph that promptfed builds. A run uses the file in place of this graph, whatever the
	// file holds by then.
	Built   string   `json:"built"`
	Inputs  []Value  `json:"inputs"`
	Outputs []Value  `json:"outputs"`
	Reads   []string `json:"reads,omitempty"` // programs whose outputs are inputs of this one
}

// Value describes an input or an output.
type Value struct {
	Name  string `json:"name"`
	DType string `json:"dtype"` // as in numpy
	Shape []any  `json:"shape"` // an int, or the name of an open size
	// From says where the value of an input comes from, such as param for a parameter, and Of which one it is there.
	From method.InputKind `json:"from,omitempty"`
	Of   string           `json:"of,omitempty"`
	// GradientOf is the input whose gradient an output is.
	GradientOf string `json:"gradient_of,omitempty"`
}

// describe returns the index's entry of a graph.
func describe(p client.Program, m *onnx.ModelProto) (Program, error) {
	out := Program{Kind: p.Kind, Backbone: p.Backbone}
	var err error
	if out.Inputs, out.Outputs, err = interfaceOf(m); err != nil {
		return out, err
	}
	for i := range out.Inputs {
		v := &out.Inputs[i]
		if k := slices.IndexFunc(p.Inputs, func(in method.Input) bool { return in.String() == v.Name }); k >= 0 {
			v.From, v.Of = p.Inputs[k].Kind, p.Inputs[k].Name
		}
	}
	for i, o := range p.Outputs { // a graph keeps their order
		if o.GradientOf != (method.Input{}) {
			out.Outputs[i].GradientOf = o.GradientOf.String()
		}
	}
	return out, nil
}

// interfaceOf returns the inputs and outputs of a model.
func interfaceOf(m *onnx.ModelProto) (inputs, outputs []Value, err error) {
	for _, v := range onnx.Inputs(m.Graph) {
		if inputs, err = appended(inputs, v); err != nil {
			return nil, nil, err
		}
	}
	for _, v := range m.Graph.GetOutput() {
		if outputs, err = appended(outputs, v); err != nil {
			return nil, nil, err
		}
	}
	return inputs, outputs, nil
}

// dtypes are numpy's names of ONNX's types.
var dtypes = map[int32]string{1: "float32", 7: "int64", 9: "bool", 10: "float16", 6: "int32", 11: "float64"}

func appended(to []Value, v *onnx.ValueInfoProto) ([]Value, error) {
	t := v.GetType().GetTensorType()
	name, ok := dtypes[t.GetElemType()]
	if !ok {
		return nil, fmt.Errorf("%s has ONNX's type %d, which no program has", v.Name, t.GetElemType())
	}
	out := Value{Name: v.Name, DType: name, Shape: []any{}}
	for _, d := range t.GetShape().GetDim() {
		if text := d.GetDimParam(); text != "" {
			out.Shape = append(out.Shape, text)
		} else {
			out.Shape = append(out.Shape, d.GetDimValue())
		}
	}
	return append(to, out), nil
}

// signature returns the names, types and shapes of values, sorted.
func signature(values []Value) string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprintf("%s %s%v", v.Name, v.DType, v.Shape))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
