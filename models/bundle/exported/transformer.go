package exported

import (
	"errors"
	"fmt"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// matcher finds the parts of a CLIP transformer in a graph, backwards from the features to the embeddings: the
// projection, layer norms, and in each block the feed-forward layers and the attention. It follows only floating-point
// values that depend on the embeddings or pixels, so masks and computations of shapes do not interfere. The result is a
// hypothesis until both forms have been run on the same inputs, so the matcher need not check factors and masks.
type matcher struct {
	dir     string
	prefix  string              // "" or "visual."
	feeds   []graph.Node        // embeddings, or pixels
	active  map[graph.Node]bool // values that depend on them
	varying map[*graph.Op]bool  // operators that depend on any input
	weights weights

	width, heads, mlp, layers, embedDim int
	act                                 string
	eps                                 float64
}

// linear is x W + b, with W [in,out], or [out,in] if rows is set.
type linear struct {
	x, w, b graph.Node
	rows    bool
	packed  *graph.Op // holds W in 4 bits; w is then absent
	in, out int
}

func newMatcher(dir, prefix string, output graph.Node, feeds ...graph.Node) *matcher {
	matcher := &matcher{dir: dir, prefix: prefix, feeds: feeds, active: map[graph.Node]bool{},
		varying: graph.ReadersOf(func(graph.Node) bool { return true }, output), weights: weights{}}
	for _, n := range feeds {
		matcher.active[n] = true
	}

	for _, op := range graph.Reachable(output) {
		active := slices.ContainsFunc(slices.Concat(op.In, op.Uses),
			func(in graph.Node) bool { return matcher.active[in] })
		for _, o := range op.Out {
			matcher.active[o] = matcher.active[o] || active && o.DType() != 0 && graph.Differentiable(o.DType())
		}
	}

	return matcher
}

// Kinds of operators that are skipped: those that only rearrange values, those that also select some, and those between
// the two matrix products of attention.
var (
	arranging = []string{"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Expand"}
	choosing  = append(slices.Clone(arranging), "Gather", "GatherND", "GatherElements", "Slice", "Split")
	scaling   = append(slices.Clone(choosing), "Mul", "Div")
	scoring   = append(slices.Clone(scaling), "Add", "Where", "Softmax")
	unit      = append(slices.Clone(scaling), "LpNormalization")
)

// source returns the only active input of an operator, or no node if there is not exactly one.
func (m *matcher) source(op *graph.Op) (out graph.Node) {
	for _, in := range op.In {
		if in.OK() && m.active[in] && in != out {
			if out.OK() {
				return graph.Node{}
			}
			out = in
		}
	}

	return out
}

// step returns the only active input of the operator that computes n, if the operator is of one of the kinds, and else
// no node.
func (m *matcher) step(n graph.Node, kinds []string) graph.Node {
	if !n.OK() || slices.Contains(m.feeds, n) || !is(n, kinds...) {
		return graph.Node{}
	}
	return m.source(n.Op())
}

// back repeats step as often as possible.
func (m *matcher) back(n graph.Node, kinds []string) graph.Node {
	for from := m.step(n, kinds); from.OK(); from = m.step(n, kinds) {
		n = from
	}
	return n
}

func is(n graph.Node, kinds ...string) bool {
	return n.OK() && n.Op().Domain == graph.Standard && slices.Contains(kinds, n.Op().Kind)
}

// other returns the input of a binary operator that is not n.
func other(op *graph.Op, n graph.Node) graph.Node {
	if op.X(0) == n {
		return op.X(1)
	}
	return op.X(0)
}

// linearAt reads the linear layer whose result is node.
func (m *matcher) linearAt(node graph.Node) (layer linear, ok bool) {
	switch op := node.Op(); {
	case is(node, "Add"):
		x := m.source(op)
		if !x.OK() {
			return layer, false
		}
		if y := m.back(x, arranging); !is(y, "Add") {
			layer, ok = m.linearAt(y)
		}
		if !ok || layer.b.OK() {
			return layer, false
		}
		layer.b = other(op, x)
	case op.Domain == graph.Microsoft && op.Kind == "MatMulNBits" && op.X(2).OK():
		layer = linear{x: op.X(0), rows: true, packed: op, in: op.Attrs.Int("K", 0), out: op.Attrs.Int("N", 0)}
		for _, in := range op.In[1:] {
			ok = ok || in.OK() && m.varying[in.Op()]
		}
		return layer, !ok && m.active[layer.x]
	case is(node, "Gemm") && op.Attrs.Int("transA", 0) == 0 && op.Attrs.Float("alpha", 1) == 1 &&
		op.Attrs.Float("beta", 1) == 1:
		layer = linear{x: op.X(0), w: op.X(1), b: op.X(2), rows: op.Attrs.Int("transB", 0) != 0}
	case is(node, "MatMul"):
		layer = linear{x: op.X(0), w: op.X(1)}
	}

	if !layer.x.OK() || !m.active[layer.x] || layer.packed == nil && !m.constant(layer.w, 2) || layer.b.OK() &&
		!m.constant(layer.b, 0) {
		return layer, false
	}

	if layer.packed == nil {
		if layer.in, layer.out = layer.w.Dim(0), layer.w.Dim(1); layer.rows {
			layer.in, layer.out = layer.out, layer.in
		}
	}

	return layer, !layer.b.OK() || layer.b.Shape().Size().Is(layer.out)
}

// linearBehind finds the last linear layer before n, across operators of the kinds.
func (m *matcher) linearBehind(n graph.Node, kinds []string) (linear, bool) {
	for n.OK() {
		if l, ok := m.linearAt(n); ok {
			return l, true
		}
		from := m.step(n, kinds)
		if is(n, "Div") && !from.OK() && m.active[n.Op().X(0)] { // division by a norm
			from = n.Op().X(0)
		}
		n = from
	}

	return linear{}, false
}

// constant reports whether a value has static sizes and depends on no input; rank 0 means any rank.
func (m *matcher) constant(n graph.Node, rank int) bool {
	if !n.OK() || n.DType() == 0 || !graph.Differentiable(n.DType()) || rank > 0 && n.Rank() != rank {
		return false
	}
	_, ok := n.Shape().Ints()
	return ok && !m.varying[n.Op()]
}

// normAt reads the layer norm whose result is n, as one operator or as several, and returns its input.
func (m *matcher) normAt(n graph.Node, name string, to weights) (input graph.Node, err error) {
	var gain, bias graph.Node
	eps := 0.0
	if op := n.Op(); is(n, "LayerNormalization") && n.Index() == 0 {
		input, gain, bias, eps = op.X(0), op.X(1), op.X(2), op.Attrs.Float("epsilon", 1e-5)
	} else if is(n, "Add") {
		scaled := m.source(op)
		if bias = other(op, scaled); is(scaled, "Mul") {
			d := m.source(scaled.Op())
			gain = other(scaled.Op(), d)
			if d = m.back(d, arranging); is(d, "Div") && is(d.Op().X(0), "Sub") && is(d.Op().X(1), "Sqrt") {
				input = m.back(d.Op().X(0).Op().X(0), []string{"Cast", "Identity"})
				if v := d.Op().X(1).Op().X(0); is(v, "Add") {
					eps = constant(m.dir, other(v.Op(), m.source(v.Op())))
				}
			}
		}
	}

	if !input.OK() || !m.active[input] || !m.constant(gain, 0) || !m.constant(bias, 0) || eps <= 0 {
		return input, fmt.Errorf("no layer norm %s was found", m.prefix+name)
	}

	size := gain.Shape().Size()
	if m.width == 0 && size.Static() {
		m.width, m.eps = size.N, eps
	}

	if !size.Is(m.width) || !bias.Shape().Size().Is(m.width) || eps != m.eps {
		return input, fmt.Errorf("layer norm %s differs from the others in size or epsilon", m.prefix+name)
	}

	to.put(name+".weight", gain)
	to.put(name+".bias", bias)
	return input, nil
}

// match finds all parts of the tower, backwards from its features; start reads the input of the first block.
func (m *matcher) match(output graph.Node, final, projection, transposed string, start func(n graph.Node) error) error {
	linear, ok := m.linearBehind(output, unit)
	if !ok || linear.b.OK() {
		return errors.New("no projection without bias was found in front of the features")
	}

	input, err := m.normAt(m.back(linear.x, choosing), final, m.weights)
	if err != nil {
		return err
	}

	if m.embedDim = linear.out; linear.in != m.width {
		return fmt.Errorf("a projection of %d values after a tower of width %d", linear.in, m.width)
	}

	if linear.rows {
		projection = transposed
	}

	m.weights[projection] = weight{node: linear.w, packed: linear.packed}
	var blocks []weights
	for node := m.back(input, choosing); ; m.layers++ {
		before, w, err := m.block(node)
		if err != nil {
			if m.layers == 0 {
				return err
			}
			if other := start(node); other != nil {
				return fmt.Errorf("before %d blocks: %w, and %w", m.layers, err, other)
			}
			break
		}
		node, blocks = before, append(blocks, w)
	}

	for i, w := range blocks {
		for name, c := range w {
			m.weights[fmt.Sprintf("transformer.resblocks.%d.%s", m.layers-1-i, name)] = c
		}
	}

	if m.width%m.heads != 0 {
		return fmt.Errorf("width %d does not divide into %d heads", m.width, m.heads)
	}

	return nil
}

// block reads the residual attention block whose result is n, and returns its input.
func (m *matcher) block(n graph.Node) (before graph.Node, tensors weights, err error) {
	tensors = weights{}
	middle, down, err := m.residual(n, "ln_2", tensors, func(down linear) (linear, error) {
		return m.feedForward(down, tensors)
	})
	if err != nil {
		return before, nil, err
	}

	before, out, err := m.residual(middle, "ln_1", tensors, func(out linear) (linear, error) {
		return m.attention(out.x, tensors)
	})
	if err == nil {
		err = errors.Join(tensors.linear("mlp.c_proj.", down, m.mlp, m.width),
			tensors.linear("attn.out_proj.", out, m.width, m.width))
	}

	return before, tensors, err
}

// residual splits n = x + last(...first(norm(x))); inner follows the branch from its last linear layer to its first
// one.
func (m *matcher) residual(n graph.Node, norm string, tensors weights,
	inner func(last linear) (linear, error)) (x graph.Node, last linear, err error) {
	err = fmt.Errorf("no sum with what layer norm %s%s takes was found", m.prefix, norm)
	for i := range 2 {
		if !is(n, "Add") || !m.active[n.Op().X(0)] || !m.active[n.Op().X(1)] {
			break
		}

		rest := m.back(n.Op().X(1-i), arranging)
		linear, ok := m.linearAt(m.back(n.Op().X(i), arranging))
		if !ok {
			continue
		}

		first, e := inner(linear)
		if e != nil {
			err = e
			continue
		}

		x, e := m.normAt(m.back(first.x, arranging), norm, tensors)
		if e == nil && m.back(x, arranging) == rest {
			return rest, linear, nil
		}
	}

	return x, last, err
}

// maxBetween limits the number of operators that are searched for an activation.
const maxBetween = 64

// feedForward follows the branch from the second linear layer across the activation to the first one.
func (m *matcher) feedForward(down linear, tensors weights) (up linear, err error) {
	act := ""
	seen := map[graph.Node]bool{}
	for visit := []graph.Node{down.x}; len(visit) > 0; {
		node := visit[len(visit)-1]
		visit = visit[:len(visit)-1]
		if seen[node] {
			continue
		}

		if seen[node] = true; len(seen) > maxBetween || slices.Contains(m.feeds, node) {
			return up, errors.New("no feed-forward layers were found")
		}

		if l, ok := m.linearAt(node); ok {
			if up.x.OK() && up != l {
				return up, errors.New("feed-forward layers of several branches")
			}
			up = l
			continue
		}

		switch kind := node.Op().Kind; {
		case kind == "Sigmoid" || kind == "QuickGelu":
			act = nn.QuickGELU
		case kind == "Erf" || kind == "Gelu":
			act = nn.GELU
		}

		for _, in := range node.Op().In {
			if in.OK() && m.active[in] {
				visit = append(visit, in)
			}
		}
	}

	switch {
	case !up.x.OK() || act == "":
		return up, errors.New("no feed-forward layers with QuickGELU or GELU between them were found")
	case m.mlp == 0:
		m.mlp, m.act = up.out, act
	case m.act != act:
		return up, errors.New("blocks of several activations")
	}

	return up, tensors.linear("mlp.c_fc.", up, m.width, m.mlp)
}

// attention follows the branch from the output of the heads to the projections of queries, keys and values; first is
// one of them.
func (m *matcher) attention(node graph.Node, tensors weights) (first linear, err error) {
	var sides []graph.Node
	node = m.back(node, arranging)
	switch op := node.Op(); {
	case is(node, "Attention") || op.Domain == graph.Microsoft && op.Kind == "MultiHeadAttention":
		sides = []graph.Node{op.X(0), op.X(1), op.X(2)}
	case is(node, "MatMul"):
		softmax, s := false, op.X(0)
		for from := m.step(s, scoring); from.OK(); from = m.step(s, scoring) {
			softmax, s = softmax || is(s, "Softmax"), from
		}
		if softmax && is(s, "MatMul") {
			sides = []graph.Node{s.Op().X(0), s.Op().X(1), op.X(1)}
		}
	}

	if len(sides) == 0 || !sides[0].OK() {
		return first, errors.New("no attention was found")
	}

	heads := node.Op().Attrs.Int("q_num_heads", node.Op().Attrs.Int("num_heads", 0))
	if d := staticAxis(sides[0], sides[0].Rank()-1); heads == 0 && d > 0 {
		heads = m.width / d
	}

	if m.heads == 0 {
		m.heads = heads
	}

	if heads < 1 || heads != m.heads {
		return first, fmt.Errorf("attention of %d heads", heads)
	}

	var all [3]linear
	for i, side := range sides {
		l, ok := m.linearBehind(side, scaling)
		if all[i] = l; !ok || m.back(l.x, arranging) != m.back(all[0].x, arranging) {
			return first, errors.New("queries, keys and values are no projections of one value")
		}
	}

	if all[0] == all[1] && all[0] == all[2] {
		return all[0], tensors.linear("attn.in_proj_", all[0], m.width, 3*m.width)
	}

	for i, name := range []string{"attn.q_proj.", "attn.k_proj.", "attn.v_proj."} {
		err = errors.Join(err, tensors.linear(name, all[i], m.width, m.width))
	}

	return all[0], err
}

// textStart reads the sum of embeddings and positions; there must be at least rows positions.
func (m *matcher) textStart(n graph.Node, rows int) error {
	x := m.source(n.Op())
	if !is(n, "Add") || !slices.Contains(m.feeds, m.back(x, arranging)) {
		return errors.New("the input of the first block is no sum of embeddings and positions")
	}
	return m.table("positional_embedding", other(n.Op(), x), rows)
}

// visionStart reads the layer norm of patches and class token, the sum with their positions, and the convolution, whose
// input it returns.
func (m *matcher) visionStart(n graph.Node) (front, conv graph.Node, err error) {
	x, err := m.normAt(n, "ln_pre", m.weights)
	if err != nil {
		return front, conv, err
	}

	sum := m.back(x, arranging)
	tokens := m.source(sum.Op())
	join := m.back(tokens, arranging)
	if !is(sum, "Add") || !is(join, "Concat") || len(join.Op().In) != 2 {
		return front, conv, errors.New("no sum of positions with class token and patches was found")
	}

	patches := m.source(join.Op())
	conv = m.back(patches, arranging)
	w := conv.Op().X(1)
	if !is(conv, "Conv") || conv.Op().X(2).OK() || !m.constant(w, 4) || w.Dim(0) != m.width || w.Dim(1) != 3 {
		return front, conv, errors.New("no convolution of patches without bias was found")
	}

	m.weights.put("conv1.weight", w)
	return conv.Op().X(0), conv, errors.Join(m.table("class_embedding", other(join.Op(), patches), 1),
		m.table("positional_embedding", other(sum.Op(), tokens), 2))
}

// table finds the constant that a value is computed from, whose rows have the width of the tower.
func (m *matcher) table(name string, n graph.Node, rows int) error {
	fits := func(c graph.Node) bool {
		s, ok := c.Shape().Ints()
		return ok && m.constant(c, 0) && len(s) > 0 && s[len(s)-1] == m.width && tensor.Size(s) >= rows*m.width
	}

	var fit []graph.Node
	if n.OK() && fits(n) {
		fit = append(fit, n)
	} else if n.OK() {
		for _, op := range graph.Reachable(n) {
			if op.Literal() != nil && fits(op.Out[0]) {
				fit = append(fit, op.Out[0])
			}
		}
	}

	if len(fit) != 1 {
		return fmt.Errorf("%d tables could be %s%s", len(fit), m.prefix, name)
	}

	m.weights.put(name, fit[0])
	return nil
}
