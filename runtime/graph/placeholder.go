package graph

import (
	"fmt"

	"promptfed/runtime/onnx"
)

// Placeholder stands for a part of the computation that is built later, when everything that asks for it is known:
// whoever compiles the graph finds it by what, looks at its inputs and attributes, and replaces it with Transform. A
// size of -1 is the batch, Sym("B").
func (g *Graph) Placeholder(what string, dtype DType, shape []int, attrs Attrs, in ...Node) Node {
	a := Attrs{"what": Attr(what), "shape": Attr(shape), "dtype": Attr(int(dtype))}
	for k, v := range attrs {
		a[k] = v
	}
	return g.internal(placeholderDef, a, in...)
}

// Placeholder tells what a placeholder stands for; ok is false for any other operator.
func (o *Op) Placeholder() (what string, ok bool) {
	return o.Attrs.Str("what", ""), o.def == placeholderDef
}

func inferPlaceholder(o *Inference) error {
	s, _ := o.Attrs.Ints("shape")
	o.SetType(0, DType(o.Attrs.Int("dtype", int(Float))))
	shape := Static(s...)
	for i, n := range s {
		if n == -1 {
			shape[i] = Sym("B")
		}
	}
	return o.Set(shape)
}

func (w *writer) placeholder(_ *onnx.GraphProto, op *Op) error {
	return fmt.Errorf("nothing has replaced the placeholder for %s", op.Attrs.Str("what", ""))
}
