package graph

import (
	"fmt"
	"slices"

	"promptfed/runtime/onnx"
)

// Bounds of what is followed while a graph is built.
const (
	MaxRank     = 64      // axes of a value
	MaxContent  = 4096    // integers of one value whose content is known
	MaxElements = 1 << 33 // of one value, where its shape is known
)

// Inference is where the shape rule of an operator puts what it finds out: element type, shape and content of the
// outputs. The element type is that of the first input before.
type Inference struct{ *Op }

// infer sets element type, shape and, for small integer tensors, content of the outputs of op. An operator without a
// definition has outputs of unknown shape and of its first input's type.
func infer(op *Op) error {
	if err := op.Attrs.check(op.def); err != nil {
		return err
	}
	for _, o := range op.Out {
		if len(op.In) > 0 && op.In[0].OK() {
			o.v.dtype = op.In[0].v.dtype
		}
	}
	if op.def == nil {
		for _, o := range op.Out {
			if !Differentiable(o.v.dtype) { // a condition or an index says nothing about the result
				o.v.dtype = 0
			}
		}
		return nil
	}
	o := &Inference{op}
	if err := o.Need(op.def.MinInputs); err != nil {
		return err
	}
	if err := op.def.Infer(o); err != nil {
		return err
	}
	for _, o := range op.Out {
		if err := o.v.check(); err != nil {
			return err
		}
	}
	return nil
}

// check refuses shapes that cannot be and drops content that does not belong to an integer tensor of that many
// elements.
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

// Need is an error unless the first n inputs are there.
func (o *Inference) Need(n int) error {
	for i := range n {
		if !o.X(i).OK() {
			return fmt.Errorf("needs %d inputs, has %d", n, len(o.In))
		}
	}
	return nil
}

// NeedSet raises the standard operator set that the graph is written in.
func (o *Inference) NeedSet(version int64) { o.g.opset = max(o.g.opset, version) }

// Set gives the first output its shape; a nil Shape is unknown.
func (o *Inference) Set(s Shape) error { return o.SetOutput(0, s) }

// SetOutput gives output i its shape.
func (o *Inference) SetOutput(i int, s Shape) error { o.Out[i].v.shape = s; return nil }

// SetType gives output i its element type.
func (o *Inference) SetType(i int, t DType) { o.Out[i].v.dtype = t }

// SetContent gives the elements of the first output, row by row. Content that does not fit its shape and type is
// dropped later.
func (o *Inference) SetContent(v []Dim) { o.Out[0].v.content = v }

// Unknown is a size of its own that only running tells. Its name says what of which operator it is.
func (o *Inference) Unknown(what string, index ...int) Dim {
	s := fmt.Sprint(what, o.ID)
	for _, i := range index {
		s += fmt.Sprint(".", i)
	}
	return opaque("%s", s)
}

// SameShape is the shape rule of operators whose first output has the shape of their first input.
func SameShape(o *Inference) error { return o.Set(o.In[0].v.shape) }

// Differentiable tells whether values of type t can carry a gradient; a type that is not known may.
func Differentiable(t DType) bool {
	switch t {
	case Float, Double, Half, onnx.TensorProto_BFLOAT16, onnx.TensorProto_UNDEFINED:
		return true
	}
	return false
}
