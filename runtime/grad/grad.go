// Package grad turns a computation into the computation of its gradient: reverse mode over graph nodes, one walk,
// one table of rules. The result is an ordinary graph that ONNX Runtime runs as inference.
package grad

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

type node = graph.Node

// Rule gives the gradient of one operator: from the gradient dy of each output (absent where nothing flows) to the
// gradient of each input (absent where none is needed or defined). Input gradients may still have the shape that
// broadcasting gave them; the walk sums them back. A gradient that is needed and absent although the output has one is
// an error: a rule that leaves an input out does not support it.
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

// flat is the rule of a function that is constant between its jumps.
func flat(c *Call) []node { return only(zerosLike(c.X(0))) }

// Of gives the gradients of a scalar with respect to each of wrt. A node that the scalar does not depend on, or only
// behind a Detach, gets zeros.
func Of(loss node, wrt ...node) ([]node, error) {
	if err := loss.Graph().Err(); err != nil {
		return nil, err
	}
	shape, ok := loss.Shape().Ints()
	if !ok || tensor.Size(shape) != 1 {
		return nil, fmt.Errorf("the gradient of shape %v was asked for; it must be a scalar", loss.Shape())
	}
	one := loss.ScalarLike(1)
	if len(shape) > 0 {
		one = one.Reshape(shape...)
	}
	return VJP([]node{loss}, []node{one}, wrt...)
}

// VJP gives the vector-Jacobian product: for each of wrt, the gradient of the sum over outputs of <cotangent, output>.
// Each cotangent has the shape of its output.
func VJP(outputs, cotangents []node, wrt ...node) ([]node, error) {
	if len(outputs) == 0 || len(outputs) != len(cotangents) || len(wrt) == 0 {
		return nil, fmt.Errorf("%d outputs with %d cotangents and %d inputs", len(outputs), len(cotangents), len(wrt))
	}
	for _, n := range slices.Concat(outputs, cotangents, wrt) {
		if err := n.Graph().Err(); err != nil {
			return nil, err
		}
		if !graph.Differentiable(n.DType()) {
			return nil, fmt.Errorf("%v holds %v: gradients are between floating-point values only", n, n.DType())
		}
	}
	ops := graph.Reachable(outputs...)
	depends, active := flow(ops, wrt)
	sum := map[node]node{}
	add := func(n, d node) {
		if old, ok := sum[n]; ok {
			d = old.Add(d)
		}
		sum[n] = d
	}
	for i, o := range outputs {
		if a, b := o.Shape(), cotangents[i].Shape(); !compatible(a, b) {
			return nil, fmt.Errorf("a cotangent of shape %v for the output %v", b, o)
		}
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
			if !d.OK() || i >= len(op.In) || !op.In[i].OK() || !depends[op.In[i]] {
				continue
			}
			d = fit(d, op.In[i])
			if a, b := op.In[i].Shape(), d.Shape(); op.Graph().Err() == nil && !compatible(a, b) {
				return nil, fmt.Errorf("gradient of %s: it has shape %v for input %d of shape %v", describe(op), b, i,
					a)
			}
			add(op.In[i], d)
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
			out[i] = zerosLike(w)
		}
	}
	return out, outputs[0].Graph().Err()
}

// flow finds the values that depend on wrt in a differentiable way, and the operators between them.
func flow(ops []*graph.Op, wrt []node) (depends map[node]bool, active map[*graph.Op]bool) {
	depends, active = map[node]bool{}, map[*graph.Op]bool{}
	for _, w := range wrt {
		depends[w] = true
	}
	for _, op := range ops {
		if op.Kind == "StopGradient" && op.Domain == graph.Own {
			continue
		}
		for _, in := range slices.Concat(op.In, op.Uses) {
			active[op] = active[op] || in.OK() && depends[in]
		}
		for _, o := range op.Out {
			if active[op] && graph.Differentiable(o.DType()) {
				depends[o] = true
			}
		}
	}
	return depends, active
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
		return nil, fmt.Errorf("no gradient rule for operator %s", describe(op))
	}
	if !c.G().OK() && op.Kind != "Split" {
		return nil, fmt.Errorf("gradient of %s: only its first output can be differentiated", describe(op))
	}
	dx := rule(c)
	if c.err != nil {
		return nil, fmt.Errorf("gradient of %s: %w", describe(op), c.err)
	}
	for i := range op.In {
		if c.need[i] && (i >= len(dx) || !dx[i].OK()) {
			return nil, fmt.Errorf("gradient of %s: the gradient of its input %d is not supported", describe(op), i)
		}
	}
	return dx, nil
}

func describe(op *graph.Op) string {
	if op.Domain != graph.Standard {
		return op.Domain + "." + op.Label()
	}
	return op.Label()
}

func key(op *graph.Op) string {
	if op.Domain == graph.Standard {
		return op.Kind
	}
	return op.Domain + "." + op.Kind
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
