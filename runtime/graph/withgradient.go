package graph

// WithGradient returns y with the gradient that vjp defines, whatever operators y comes from. vjp returns the gradient
// of each of in, which are the inputs of its argument after y, with a zero Node for an integer; equal keys are of equal
// functions. In a model the result is y.
func WithGradient(y Node, key string, vjp func(*Backward) []Node, in ...Node) Node {
	n := y.Graph().internal(ownDef, Attrs{"key": Attr(key)}, append([]Node{y.Detach()}, in...)...)
	if !n.failed() {
		n.value.op.value = vjp
	}
	return n
}

func ownGradient(c *Backward) []Node {
	return append([]Node{{}}, c.value.(func(*Backward) []Node)(c)...)
}
