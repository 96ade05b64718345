// Package grad turns a computation into the computation of its gradient: reverse mode over graph nodes, one walk,
// one table of rules. The result is an ordinary graph that ONNX Runtime runs as inference.
package grad

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
)

type node = graph.Node

// Rule gives the gradient of one operator: from the gradient dy of each output (absent where nothing flows) to the
// gradient of each input (absent where none is needed or defined). Input gradients may still have the shape that
// broadcasting gave them; Of sums them back.
type Rule func(c *Call) []node

// Call is one application of a rule.
type Call struct {
	Op   *graph.Op
	DY   []node
	need []bool
	err  error
}

// Need tells whether the gradient of input i is wanted.
func (c *Call) Need(i int) bool { return i < len(c.need) && c.need[i] }

// X is input i, Y is the first output, G the gradient of the first output.
func (c *Call) X(i int) node {
	if i < len(c.Op.In) {
		return c.Op.In[i]
	}
	return node{}
}
func (c *Call) Y() node { return c.Op.Out[0] }
func (c *Call) G() node { return c.DY[0] }

// Fail ends the walk with an error about this operator.
func (c *Call) Fail(format string, a ...any) []node {
	c.err = fmt.Errorf(format, a...)
	return nil
}

// only is a gradient of the first input alone.
func only(dx node) []node { return []node{dx} }

// Of gives the gradients of a scalar with respect to each of wrt. A node that the scalar does not depend on, or only
// behind a Detach, gets zeros.
func Of(loss node, wrt ...node) ([]node, error) {
	if err := loss.Graph().Err(); err != nil {
		return nil, err
	}
	if s, ok := loss.Shape().Ints(); !ok || size(s) != 1 {
		return nil, fmt.Errorf("the gradient of shape %v was asked for; it must be a scalar", loss.Shape())
	}
	one := loss.Mul(loss.ScalarLike(0)).Shift(1)
	if s, _ := loss.Shape().Ints(); loss.DType() == graph.Float && len(s) == 0 {
		one = loss.Graph().Scalar(1)
	}
	return VJP([]node{loss}, []node{one}, wrt...)
}

// VJP gives the vector-Jacobian product: for each of wrt, the gradient of the sum over outputs of <cotangent, output>.
// Each cotangent has the shape of its output.
func VJP(outputs, cotangents []node, wrt ...node) ([]node, error) {
	if len(outputs) == 0 || len(outputs) != len(cotangents) || len(wrt) == 0 {
		return nil, fmt.Errorf("%d outputs with %d cotangents and %d inputs", len(outputs), len(cotangents), len(wrt))
	}
	ops := graph.Reachable(outputs...)
	depends := map[node]bool{}
	for _, w := range wrt {
		depends[w] = true
	}
	active := map[*graph.Op]bool{}
	for _, op := range ops {
		if op.Kind == "StopGradient" && op.Domain == graph.Own {
			continue
		}
		for _, in := range op.In {
			if in.OK() && depends[in] {
				active[op] = true
			}
		}
		if active[op] {
			for _, o := range op.Out {
				depends[o] = true
			}
		}
	}
	sum := map[node]node{}
	add := func(n, d node) {
		if old, ok := sum[n]; ok {
			d = old.Add(d)
		}
		sum[n] = d
	}
	for i, o := range outputs {
		add(o, cotangents[i])
	}
	for _, op := range slices.Backward(ops) {
		if !active[op] {
			continue
		}
		dx, err := apply(op, sum, depends)
		if err != nil {
			return nil, err
		}
		for i, d := range dx {
			if d.OK() && op.In[i].OK() && depends[op.In[i]] {
				add(op.In[i], fit(d, op.In[i]))
			}
		}
		if err := op.Graph().Err(); err != nil {
			return nil, fmt.Errorf("gradient of %s: %w", op.Label(), err)
		}
	}
	out := make([]node, len(wrt))
	for i, w := range wrt {
		if d, ok := sum[w]; ok && depends[w] {
			out[i] = d
		} else {
			out[i] = w.Mul(w.ScalarLike(0))
		}
	}
	return out, outputs[0].Graph().Err()
}

func apply(op *graph.Op, sum map[node]node, depends map[node]bool) ([]node, error) {
	c := &Call{Op: op, DY: make([]node, len(op.Out)), need: make([]bool, len(op.In))}
	flows := false
	for i, o := range op.Out {
		c.DY[i] = sum[o]
		flows = flows || c.DY[i].OK()
	}
	if !flows {
		return nil, nil
	}
	for i, in := range op.In {
		c.need[i] = in.OK() && depends[in]
	}
	rule, ok := rules[key(op)]
	if !ok {
		if integer(op.Out[0].DType()) {
			return nil, nil
		}
		return nil, fmt.Errorf("no gradient rule for operator %s", describe(op))
	}
	dx := rule(c)
	if c.err != nil {
		return nil, fmt.Errorf("gradient of %s: %w", describe(op), c.err)
	}
	return dx, nil
}

func describe(op *graph.Op) string {
	if op.Domain != graph.Standard {
		return op.Domain + "." + op.Label()
	}
	return op.Label()
}

func integer(t graph.DType) bool {
	return t == graph.Int64 || t == graph.Int32 || t == graph.Bool || t == graph.Uint8
}

func key(op *graph.Op) string {
	if op.Domain == graph.Standard {
		return op.Kind
	}
	return op.Domain + "." + op.Kind
}

func size(s []int) int {
	n := 1
	for _, d := range s {
		n *= d
	}
	return n
}

// fit sums a gradient over the axes that broadcasting repeated, so that it has the shape of x.
func fit(d, x node) node {
	from, to := d.Shape(), x.Shape()
	if fmt.Sprint(from) == fmt.Sprint(to) && to.Known() {
		return d
	}
	if !from.Known() || !to.Known() {
		return fitAtRun(d, x)
	}
	lead := len(from) - len(to)
	if lead < 0 {
		return d.ReshapeLike(x)
	}
	var axes []int
	for i := range from {
		switch {
		case i < lead:
			axes = append(axes, i)
		case from[i] == to[i-lead]:
		case to[i-lead].Is(1):
			axes = append(axes, i)
		case from[i].Static() != to[i-lead].Static(), from[i].Static():
			return fitAtRun(d, x)
		default:
			return fitAtRun(d, x)
		}
	}
	if len(axes) == 0 {
		return d
	}
	s := d.SumKeep(axes...)
	if lead == 0 {
		return s
	}
	return s.ReshapeLike(x)
}

// fitAtRun is fit where the sizes are only known when the graph runs.
func fitAtRun(d, x node) node {
	g := d.Graph()
	one := g.Ints(1)
	pad := x.ShapeOf()
	if d.Rank() > x.Rank() && x.Rank() >= 0 {
		ones := make([]int, d.Rank()-x.Rank())
		for i := range ones {
			ones[i] = 1
		}
		pad = graph.Concat(0, g.Ints(ones...), pad)
	}
	repeated := g.Apply(graph.Standard, "And", nil, pad.Equal(one), d.ShapeOf().Greater(one))
	axes := g.Apply(graph.Standard, "NonZero", nil, repeated).Reshape(-1)
	s := g.Apply(graph.Standard, "ReduceSum", graph.Attrs{"keepdims": 1, "noop_with_empty_axes": 1}, d, axes)
	return s.ReshapeLike(x)
}

// Kinds lists the operators that have a rule, sorted; operators outside the ONNX standard carry their domain.
func Kinds() []string {
	var out []string
	for k := range rules {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
