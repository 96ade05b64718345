package programs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/federation/engine/client"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
)

// File is the name of the index in a folder of programs.
const File = "programs.json"

// version is that of the index.
const version = 2

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
	var text strings.Builder
	for _, p := range x.Programs {
		fmt.Fprintf(&text, "%s (%s)\n", p.File, p.Kind)
		for _, side := range []struct {
			what   string
			values []Value
		}{{"in ", p.Inputs}, {"out", p.Outputs}} {
			for _, v := range side.values {
				fmt.Fprintf(&text, "    %s  %s %s %v\n", side.what, v.Name, v.DType, v.Shape)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(x.Backbones)) {
		fmt.Fprintf(&text, "weights of %s: %s\n", name, x.Backbones[name].Weights)
	}

	return text.String()
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
	Name  string   `json:"name"`
	DType string   `json:"dtype"` // as in numpy
	Shape []string `json:"shape"` // sizes, and names of open sizes
	// From says where the value of an input comes from, such as param for a parameter, and Of which one it is there.
	From method.InputKind `json:"from,omitempty"`
	Of   string           `json:"of,omitempty"`
	// GradientOf is the input whose gradient an output is.
	GradientOf string `json:"gradient_of,omitempty"`
}

// describe returns the index's entry of a graph.
func describe(program client.Program, m *onnx.ModelProto) (Program, error) {
	out := Program{Kind: program.Kind, Backbone: program.Backbone}
	inputs, outputs, err := valuesOf(m)
	if err != nil {
		return out, err
	}

	for _, v := range inputs {
		value := described(v)
		if k := slices.IndexFunc(program.Inputs, func(in method.Input) bool { return in.String() == v.Name }); k >= 0 {
			value.From, value.Of = program.Inputs[k].Kind, program.Inputs[k].Name
		}
		out.Inputs = append(out.Inputs, value)
	}

	for _, v := range outputs {
		value := described(v)
		if in, ok := program.Gradients[v.Name]; ok {
			value.GradientOf = in.String()
		}
		out.Outputs = append(out.Outputs, value)
	}

	return out, nil
}

func described(v ort.ValueInfo) Value {
	return Value{Name: v.Name, DType: v.DType(), Shape: convert.Slice(v.Shape, ort.Dim.String)}
}

// valuesOf returns the inputs and outputs of a model.
func valuesOf(m *onnx.ModelProto) (inputs, outputs []ort.ValueInfo, err error) {
	if inputs, err = ort.ValueInfos(onnx.Inputs(m.Graph)); err == nil {
		outputs, err = ort.ValueInfos(m.Graph.GetOutput())
	}
	return inputs, outputs, err
}

// signature returns the names, types and shapes of values, sorted.
func signature(values []ort.ValueInfo) string {
	all := convert.Slice(values, ort.ValueInfo.String)
	slices.Sort(all)
	return strings.Join(all, ", ")
}
