package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// Def is all that is known of one operator. The operators of ONNX and of ONNX Runtime are defined in runtime/ops; any
// other operator of a file stays as it is, with outputs of unknown shape and without a gradient.
type Def struct {
	Domain, Kind string
	MinInputs    int    // how many of the first inputs must be there
	Since        int64  // the standard operator set that it came with, where that is younger than Opset
	MinRank      int    // the least rank of the first input that its gradient needs to know, 0 where it need not
	Attrs        string // names and types of its attributes: "axis int, pads ints"; see attributeTypes
	// Infer sets the shapes of the outputs and, where they are not that of the first input, their element types; and
	// the content of small integer tensors. It is called with at least MinInputs inputs, of any rank and type.
	Infer func(*Inference) error
	// VJP is the vector-Jacobian product: from the gradient of each output (absent where nothing flows) to the
	// gradient of each input (absent where none is needed or defined). Input gradients may still have the shape that
	// broadcasting gave them. A gradient that is needed and absent is an error: the rule does not support it.
	VJP func(*Backward) []Node
	// Decompose writes the first output out in other operators, which are differentiated in place of a VJP; the
	// operator's own forward computation stays as it is.
	Decompose  func(c *Backward, in []Node) Node
	AllOutputs bool // VJP takes gradients of every output; otherwise only the first output can be differentiated
	NonSmooth  bool // the slope jumps somewhere, which finite differences must not step over
	Constant   bool // its outputs are constants for gradients

	attrs map[string]onnx.AttributeProto_AttributeType
	write func(w *writer, g *onnx.GraphProto, op *Op) error // of an operator of this package's own
}

// Differentiable tells whether d has a gradient.
func (d *Def) Differentiable() bool { return d != nil && (d.VJP != nil || d.Decompose != nil) }

// Name is the kind with the domain in front unless that is ONNX's own.
func (d *Def) Name() string {
	if d.Domain == Standard {
		return d.Kind
	}
	return d.Domain + "." + d.Kind
}

var registry = map[[2]string]*Def{}

// Register adds operators to the registry, once, while the program starts; runtime/ops does.
func Register(defs ...Def) {
	for _, d := range defs {
		key := [2]string{d.Domain, d.Kind}
		if registry[key] != nil || d.Infer == nil || d.VJP != nil && d.Decompose != nil {
			panic(fmt.Sprintf("operator %s is defined twice, has no shape rule, or has two gradients", d.Name()))
		}
		d.attrs = map[string]onnx.AttributeProto_AttributeType{}
		for _, a := range strings.FieldsFunc(d.Attrs, func(r rune) bool { return r == ',' }) {
			name, kind, _ := strings.Cut(strings.TrimSpace(a), " ")
			if d.attrs[name] = attributeTypes[kind]; d.attrs[name] == 0 {
				panic(fmt.Sprintf("operator %s: attribute %q", d.Name(), a))
			}
		}
		registry[key] = &d
	}
}

func lookup(domain, kind string) *Def { return registry[[2]string{domain, kind}] }

// Defs lists the registry, sorted by name.
func Defs() []*Def {
	return slices.SortedFunc(maps.Values(registry), func(a, b *Def) int { return cmp.Compare(a.Name(), b.Name()) })
}

// Operators of this package's own are in no registry, so no file can name them.
var (
	inputDef    = &Def{Kind: "Input", write: (*writer).input}
	constantDef = &Def{Kind: "Constant", write: (*writer).constant}
	failedDef   = &Def{Kind: "Error"} // swallows whatever is done with it
	stopDef     = &Def{Kind: "StopGradient", Infer: SameShape, Constant: true, write: func(*writer, *onnx.GraphProto,
		*Op) error {
		return nil
	}}
	placeholderDef = &Def{Kind: "Placeholder", Infer: inferPlaceholder, write: (*writer).placeholder}
	whileDef       = &Def{Kind: "While", Infer: inferWhile, write: (*writer).loop}
)

// Backward is one application of a gradient rule.
type Backward struct {
	*Op
	DY    []Node // the gradient of each output
	Needs []bool // the inputs whose gradients are asked for
	Err   error  // of the rule
}

// Need tells whether the gradient of input i is wanted.
func (c *Backward) Need(i int) bool { return i < len(c.Needs) && c.Needs[i] }

// Y is the first output, G its gradient.
func (c *Backward) Y() Node { return c.Out[0] }
func (c *Backward) G() Node { return c.DY[0] }

// Fail ends the walk with an error about this operator.
func (c *Backward) Fail(format string, a ...any) []Node {
	c.Err = fmt.Errorf(format, a...)
	return nil
}

// Refuse is Fail for a decomposition.
func (c *Backward) Refuse(format string, a ...any) Node {
	c.Fail(format, a...)
	return Node{}
}
