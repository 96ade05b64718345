package graph

// Defer is a placeholder for a part of the computation that is built later, when everything that asks for it is known:
// whoever compiles the graph finds it by what, looks at its inputs and attributes, and replaces it with Transform. A size
// of -1 is the batch, Sym("B").
func (g *Graph) Defer(what string, dtype DType, shape []int, attrs Attrs, in ...Node) Node {
	a := Attrs{"what": what, "shape": shape, "dtype": int(dtype)}
	for k, v := range attrs {
		a[k] = v
	}
	return g.Apply(Own, "Deferred", a, in...)
}

// Deferred tells what a placeholder stands for; ok is false for any other operator.
func (o *Op) Deferred() (what string, ok bool) {
	return o.Attrs.Str("what", ""), o.Domain == Own && o.Kind == "Deferred"
}

func inferDeferred(o *Op) error {
	s, _ := o.Attrs.Ints("shape")
	o.Out[0].v.dtype = DType(o.Attrs.Int("dtype", int(Float)))
	shape := Static(s...)
	for i, n := range s {
		if n == -1 {
			shape[i] = Sym("B")
		}
	}
	return o.set(shape)
}
