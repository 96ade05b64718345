package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// Def defines one operator. Package runtime/ops defines the operators of ONNX and ONNX Runtime. Any other operator of a
// file stays unchanged, with outputs of unknown shape and no gradient.
type Def struct {
	Domain, Kind string
	MinInputs    int    // number of leading inputs that must be present
	Since        int64  // first standard operator set with it, if later than Opset
	MinRank      int    // minimum known rank of the first input for the gradient; 0: it may be unknown
	Attrs        string // names and types of attributes: "axis int, pads ints"; see attributeTypes
	// Infer sets the shapes of the outputs, their element types unless they are that of the first input, and the
	// elements of small integer tensors. It is called with at least MinInputs inputs, of any rank and type.
	Infer func(*Inference) error
	// VJP is the vector-Jacobian product: from the gradient of each output (a zero Node where none flows) it returns
	// the gradient of each input (a zero Node where none is needed or defined). Input gradients may have the shape
	// after broadcasting. A needed gradient that is a zero Node is an error: the rule does not support it.
	VJP func(*Backward) []Node
	// Decompose returns the first output in terms of other operators, which are differentiated instead of a VJP, and
	// sets Others. The forward computation keeps the operator itself.
	Decompose  func(c *Backward, in []Node) Node
	AllOutputs bool // the rule uses gradients of all outputs; otherwise only the first output has a gradient
	NonSmooth  bool // the derivative has jumps, which finite differences must not cross
	Constant   bool // its outputs have no gradient

	attrs map[string]onnx.AttributeProto_AttributeType
	write func(w *writer, g *onnx.GraphProto, op *Op) error // for operators of this package
}

// Differentiable reports whether d has a gradient.
func (d *Def) Differentiable() bool { return d != nil && (d.VJP != nil || d.Decompose != nil) }

// Name returns the kind, prefixed by the domain unless that is ONNX's.
func (d *Def) Name() string { return onnx.Kind(d.Domain, d.Kind) }

var registry = map[[2]string]*Def{}

// Register adds operators to the registry at program start (package runtime/ops calls it). Each operator may be added
// once.
func Register(defs ...Def) {
	for _, def := range defs {
		key := [2]string{def.Domain, def.Kind}
		if registry[key] != nil || def.Infer == nil || def.VJP != nil && def.Decompose != nil {
			panic(fmt.Sprintf("operator %s is defined twice, has no shape rule, or has two gradients", def.Name()))
		}
		def.attrs = map[string]onnx.AttributeProto_AttributeType{}
		for _, a := range strings.FieldsFunc(def.Attrs, func(r rune) bool { return r == ',' }) {
			name, kind, _ := strings.Cut(strings.TrimSpace(a), " ")
			if def.attrs[name] = attributeTypes[kind]; def.attrs[name] == 0 {
				panic(fmt.Sprintf("operator %s: attribute %q", def.Name(), a))
			}
		}
		registry[key] = &def
	}
}

func lookup(domain, kind string) *Def { return registry[[2]string{domain, kind}] }

// Defs lists the registry, sorted by name.
func Defs() []*Def {
	return slices.SortedFunc(maps.Values(registry), func(a, b *Def) int { return cmp.Compare(a.Name(), b.Name()) })
}

// Operators of this package are not in the registry, so no file can name them.
var (
	inputDef       = &Def{Kind: "Input", write: (*writer).input}
	constantDef    = &Def{Kind: "Constant", write: (*writer).constant}
	failedDef      = &Def{Kind: "Error"} // every operator on it is that node again
	stopDef        = &Def{Kind: "StopGradient", Infer: SameShape, Constant: true, write: (*writer).nothing}
	placeholderDef = &Def{Kind: "Placeholder", Infer: inferPlaceholder, write: (*writer).placeholder}
	whileDef       = &Def{Kind: "While", Infer: inferWhile, write: (*writer).loop}
	ownDef         = &Def{Kind: "WithGradient", Infer: SameShape, VJP: ownGradient, write: (*writer).nothing}
)

// Backward is one application of a gradient rule.
type Backward struct {
	*Op
	DY     []Node // the gradient of each output
	Needs  []bool // whether the gradient of each input is needed
	Others []Node // of a decomposition: further outputs, a zero Node where there is none
	Err    error  // of the rule
}

// NeedsGrad reports whether the gradient of input i is needed.
func (c *Backward) NeedsGrad(i int) bool { return i < len(c.Needs) && c.Needs[i] }

// Y returns the first output.
func (c *Backward) Y() Node { return c.Out[0] }

// G returns the gradient of the first output.
func (c *Backward) G() Node { return c.DY[0] }

// Fail records an error of this operator, which ends the backward pass.
func (c *Backward) Fail(format string, a ...any) []Node {
	c.Err = fmt.Errorf(format, a...)
	return nil
}

// FailNode is Fail for a decomposition.
func (c *Backward) FailNode(format string, a ...any) Node {
	c.Fail(format, a...)
	return Node{}
}
