package graph

import (
	"fmt"
	"slices"

	"promptfed/runtime/onnx"
)

// Bounds while building a graph.
const (
	MaxRank     = onnx.MaxRank
	MaxContent  = 4096    // known elements of one integer value
	MaxElements = 1 << 33 // of one value of known shape
)

// Inference receives the results of an operator's shape rule: element type, shape and known elements of the outputs.
// Before the rule, the element type is that of the first input.
type Inference struct{ *Op }

// infer sets element type, shape and (for small integer tensors) the elements of the outputs of op. An operator without
// a definition has outputs of unknown shape and of the type of its first input.
func infer(op *Op) error {
	if err := op.Attrs.check(op.def); err != nil {
		return err
	}

	for _, o := range op.Out {
		if len(op.In) > 0 && op.In[0].OK() {
			o.value.dtype = op.In[0].value.dtype
		}
	}

	if op.def == nil {
		for _, o := range op.Out {
			if !Differentiable(o.value.dtype) { // the type of a condition or an index says nothing about the result
				o.value.dtype = 0
			}
		}
		return nil
	}

	o := &Inference{op}
	if err := o.RequireInputs(op.def.MinInputs); err != nil {
		return err
	}

	if err := op.def.Infer(o); err != nil {
		return err
	}

	for _, o := range op.Out {
		if err := o.value.check(); err != nil {
			return err
		}
	}

	return nil
}

// check rejects impossible shapes, and drops elements that do not belong to an integer tensor of that size.
func (v *value) check() error {
	if len(v.shape) > MaxRank {
		return fmt.Errorf("the result has %d axes; at most %d are supported", len(v.shape), MaxRank)
	}

	for _, d := range v.shape {
		if d.Static() && d.N < 0 {
			return fmt.Errorf("the result would have shape %v", v.shape)
		}
	}

	if sizes, ok := v.shape.Ints(); ok {
		n := 1
		for _, d := range sizes {
			if d > 0 && n > MaxElements/d && !slices.Contains(sizes, 0) {
				return fmt.Errorf("the result would have shape %v, of more than %d elements", v.shape, MaxElements)
			}
			n *= d
		}
	}

	if v.shape == nil || !v.shape.Size().Is(len(v.content)) || len(v.content) > MaxContent || Differentiable(v.dtype) {
		v.content = nil
	}

	return nil
}

// RequireInputs returns an error unless the first n inputs are present.
func (o *Inference) RequireInputs(n int) error {
	for i := range n {
		if !o.X(i).OK() {
			return fmt.Errorf("input %d is missing; it needs %d", i, n)
		}
	}
	return nil
}

// RequireOpset raises the standard operator set of the graph to at least version.
func (o *Inference) RequireOpset(version int64) { o.graph.opset = max(o.graph.opset, version) }

// Set sets the shape of the first output; a nil Shape is unknown.
func (o *Inference) Set(s Shape) error { return o.SetOutput(0, s) }

// SetOutput sets the shape of output i.
func (o *Inference) SetOutput(i int, s Shape) error { o.Out[i].value.shape = s; return nil }

// SetType sets the element type of output i.
func (o *Inference) SetType(i int, t DType) { o.Out[i].value.dtype = t }

// SetContent sets the elements of the first output, in row order. Elements that do not fit shape and type are dropped
// later.
func (o *Inference) SetContent(v []Dim) { o.Out[0].value.content = v }

// Unknown returns a new symbolic size that is known only at run time, named by what, the operator and index.
func (o *Inference) Unknown(what string, index ...int) Dim {
	s := fmt.Sprint(what, o.ID)
	for _, i := range index {
		s += fmt.Sprint(".", i)
	}
	return opaque("%s", s)
}

// SameShape is the shape rule of operators whose first output has the shape of their first input.
func SameShape(o *Inference) error { return o.Set(o.In[0].value.shape) }

// Differentiable reports whether values of type t can have a gradient; values of unknown type may.
func Differentiable(t DType) bool {
	switch t {
	case Float, Double, Half, onnx.TensorProto_BFLOAT16, onnx.TensorProto_UNDEFINED:
		return true
	}
	return false
}
