package method

import (
	"slices"

	"promptfed/runtime/graph"
)

// Input says where the value of an input of a graph comes from.
type Input struct {
	Kind InputKind
	Name string // of the tensor among those of its kind
}

// InputKind is the kind of source of an input.
type InputKind string

// Kinds of inputs.
const (
	RowInput       InputKind = "row"      // rows of a batch
	ParamInput     InputKind = "param"    // current values of parameters
	ReceivedInput  InputKind = "received" // as the server sent them
	BeforeInput    InputKind = "before"   // as this client last left them
	BroadcastInput InputKind = "down"     // extras from the server
	StateInput     InputKind = "kept"     // state this client kept
	ScalarInput    InputKind = "scalar"   // numbers set by Begin
	HostInput      InputKind = "host"     // values of host functions
	DrawInput      InputKind = "draw"     // numbers drawn with a batch, which has them under the input's text
	ClientInput    InputKind = "client"   // classes and examples of a client
)

// Inputs of one name each.
var (
	// LocalClassesInput [C] is 1 for classes of which this client has training examples, 0 for others.
	LocalClassesInput = Input{ClientInput, "owned"}
	// MemoryImage [N,D] and MemoryLabel [N], int64, are the features and the class numbers of all training examples of
	// this client, before any method wraps its data. Tests can read them, too.
	MemoryImage = Input{ClientInput, "image"}
	MemoryLabel = Input{ClientInput, "label"}
)

// Names of inputs that are rows of a batch.
const (
	ImageInput   = "image"   // [B,D]
	PatchesInput = "patches" // [B,M,D]
	// TokensInput [B,N,v] are the tokens behind the image tower's last block, the class token first: before the last
	// layer norm and the projection, and no unit rows.
	TokensInput = "tokens"
	PixelsInput = "pixels" // [B,3,S,S], normalised
	LabelInput  = "label"  // [B]
)

// String returns the name of the input in ONNX, which no code parses: the kind, a slash and the name; for rows of a
// batch the name alone.
func (in Input) String() string {
	if in.Kind == RowInput || in.Kind == "" {
		return in.Name
	}
	return string(in.Kind) + "/" + in.Name
}

// InputOf returns the source of an input node. Its Kind is empty for a node that no Scope.Input declared.
func InputOf(n graph.Node) Input {
	if in, ok := n.Source().(Input); ok {
		return in
	}
	return Input{Name: n.Name()}
}

// Inputs lists the sources of the inputs that nodes depend on, in the order of their declaration.
func Inputs(nodes ...graph.Node) []Input {
	var out []Input
	for _, n := range graph.Inputs(nodes...) {
		out = append(out, InputOf(n))
	}
	return out
}

// Input declares an input of the graph, or returns the node of one that exists.
func (s *Scope) Input(in Input, dtype graph.DType, shape graph.Shape) graph.Node {
	return s.graph.InputFrom(in, dtype, shape)
}

// Reads lists the inputs that nodes depend on, followed by those that host functions among them read.
func (s *Scope) Reads(nodes ...graph.Node) []Input {
	return WithArguments(Inputs(nodes...), s.built.Hosts)
}

// WithArguments adds the arguments of the host functions whose values are among some inputs.
func WithArguments(inputs []Input, hosts []HostCall) []Input {
	for _, call := range hosts {
		if slices.Contains(inputs, call.Input()) {
			inputs = append(inputs, call.Args...)
		}
	}
	return inputs
}
