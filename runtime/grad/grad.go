package grad

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/ops"
	"promptfed/runtime/tensor"
)

type node = graph.Node

// Of returns the gradients of a scalar with respect to each of wrt. The gradient is zero for a node that the scalar
// does not depend on, or only through Detach.
func Of(loss node, wrt ...node) ([]node, error) {
	if err := loss.Graph().Err(); err != nil {
		return nil, err
	}

	shape, ok := loss.Shape().Ints()
	if !ok || tensor.Size(shape) != 1 {
		return nil, fmt.Errorf("the gradient of a node of shape %v; it must be a scalar", loss.Shape())
	}

	one := loss.ScalarLike(1)
	if len(shape) > 0 {
		one = one.Reshape(shape...)
	}

	return VJP([]node{loss}, []node{one}, wrt...)
}

// VJP returns the vector-Jacobian product: for each of wrt, the gradient of the sum over outputs of <cotangent,
// output>. Each cotangent has the shape of its output.
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

	list := graph.Reachable(outputs...)
	depends, active := flow(list, wrt)
	sum := map[node]node{}
	add := func(n, d node) {
		if old, ok := sum[n]; ok {
			d = ops.AddSameShape(old, d)
		}
		sum[n] = d
	}

	for i, o := range outputs {
		if a, b := o.Shape(), cotangents[i].Shape(); !ops.Compatible(a, b) {
			return nil, fmt.Errorf("a cotangent of shape %v for the output %v", b, o)
		}
		add(o, cotangents[i])
	}

	for _, op := range slices.Backward(list) {
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
			d = ops.SumTo(d, op.In[i])
			if a, b := op.In[i].Shape(), d.Shape(); op.Graph().Err() == nil && !ops.Compatible(a, b) {
				return nil, fmt.Errorf("gradient of %s: it has shape %v for input %d of shape %v", op.Label(), b, i, a)
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
			out[i] = ops.ZerosLike(w)
		}
	}

	return out, outputs[0].Graph().Err()
}

// flow finds the values that depend on wrt in a differentiable way, and the operators in between.
func flow(list []*graph.Op, wrt []node) (depends map[node]bool, active map[*graph.Op]bool) {
	depends, active = map[node]bool{}, map[*graph.Op]bool{}
	for _, w := range wrt {
		depends[w] = true
	}

	for _, op := range list {
		if op.Def() != nil && op.Def().Constant {
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
	dy, need, flows := make([]node, len(op.Out)), make([]bool, len(op.In)), false
	for i, o := range op.Out {
		dy[i] = sum[o]
		flows = flows || dy[i].OK()
	}

	if !flows {
		return nil, nil
	}

	for i, in := range op.In {
		need[i] = in.OK() && depends[in]
	}

	def := op.Def()
	switch {
	case !def.Differentiable():
		return nil, fmt.Errorf("no gradient rule for operator %s", op.Label())
	case !def.AllOutputs && (!dy[0].OK() || slices.ContainsFunc(dy[1:], node.OK)):
		return nil, fmt.Errorf("gradient of %s: only its first output can be differentiated", op.Label())
	case def.MinRank > 0 && op.X(0).Rank() < def.MinRank:
		return nil, fmt.Errorf("gradient of %s: the rank of its input is not known, or below %d", op.Label(),
			def.MinRank)
	}

	backward, rule := &graph.Backward{Op: op, DY: dy, Needs: need}, def.VJP
	if rule == nil {
		rule = decompose
	}

	dx := rule(backward)
	if backward.Err != nil {
		return nil, fmt.Errorf("gradient of %s: %w", op.Label(), backward.Err)
	}

	for i := range op.In {
		if backward.NeedsGrad(i) && (i >= len(dx) || !dx[i].OK()) {
			return nil, fmt.Errorf("gradient of %s: the gradient of its input %d is not supported", op.Label(), i)
		}
	}

	return dx, nil
}

// decompose differentiates the decomposition of an operator, with inputs that are detached from their operators.
func decompose(backward *graph.Backward) []node {
	in, wrt, at := make([]node, len(backward.In)), []node(nil), []int(nil)
	for i, x := range backward.In {
		if in[i] = x; x.OK() && backward.NeedsGrad(i) { // separate nodes, because two inputs may be one node
			in[i] = x.DetachAs(i)
			wrt, at = append(wrt, in[i]), append(at, i)
		}
	}

	y := backward.Def().Decompose(backward, in)
	if backward.Err != nil {
		return nil
	}

	if err := y.Graph().Err(); err != nil {
		return backward.Fail("written out: %v", err)
	}

	all := append([]node{y}, backward.Others...)
	var outputs, cotangents []node
	for i, d := range backward.DY {
		switch {
		case !d.OK():
			continue
		case i >= len(all) || !all[i].OK():
			return backward.Fail("its output %d cannot be differentiated", i)
		}
		outputs, cotangents = append(outputs, all[i]), append(cotangents, d)
	}

	dx, err := VJP(outputs, cotangents, wrt...)
	if err != nil {
		return backward.Fail("written out: %v", err)
	}

	out := make([]node, len(backward.In))
	for i, d := range dx {
		out[at[i]] = d
	}

	return out
}
