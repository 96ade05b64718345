package grad_test

import (
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// TestComposedGraph compares every gradient of a causal attention block under a cross entropy with PyTorch's autograd
// (tools/golden/grad.py). The batch is a symbol.
func TestComposedGraph(t *testing.T) {
	const n, w, heads = 4, 6, 2
	want := golden(t, "composed.json")
	g, feeds := graph.New(), tensor.Map{"label": tensor.OfInts([]int64{2, 0}, 2)}
	var wrt []node
	in := func(name string) node {
		if x, ok := g.InputNamed(name); ok {
			return x
		}
		shape := graph.Static(want[name].Shape...)
		if name == "x" {
			shape[0] = graph.Sym("B")
		}
		feeds[name] = want[name]
		wrt = append(wrt, g.Input(name, graph.Float, shape))
		return wrt[len(wrt)-1]
	}
	linear := func(x node, name string) node { return x.MatMul(in(name + ".w").T()).Add(in(name + ".b")) }
	norm := func(x node, name string) node {
		return g.Apply(graph.Standard, "LayerNormalization", nil, x, in(name+".w"), in(name+".b"))
	}
	mask := tensor.New(n, n)
	for i := range n {
		for j := i + 1; j < n; j++ {
			mask.Data[i*n+j] = -1e4
		}
	}
	x := in("x")
	qkv := linear(norm(x, "ln1"), "qkv").Reshape(-1, n, 3, heads, w/heads).Transpose(2, 0, 3, 1, 4)
	part := func(i int) node { return qkv.Slice(0, i, i+1).Squeeze(0) }
	scores := part(0).MatMulT(part(1)).MulScalar(0.5773502691896258).Add(g.Const(mask)) // 1/sqrt(3)
	x = x.Add(linear(scores.Softmax(-1).MatMul(part(2)).Transpose(0, 2, 1, 3).Reshape(-1, n, w), "out"))
	h := linear(norm(x, "ln2"), "fc1")
	x = x.Add(linear(h.Mul(h.MulScalar(1.702).Sigmoid()), "fc2"))
	logits := x.Gather(1, g.Scalar64(-1)).L2Normalize().MatMulT(in("head").L2Normalize()).MulScalar(4)
	loss := graph.CrossEntropy(logits, g.Input("label", graph.Int64, graph.Shape{graph.Sym("B")}))
	dx := orttest.Gradients(t, loss, wrt...)
	outputs := []graph.Output{{Name: "loss", Node: loss}}
	for i, d := range dx {
		outputs = append(outputs, graph.Output{Name: "grad/" + wrt[i].Name(), Node: d})
	}
	got := run(t, modelOf(t, outputs...), feeds)
	for _, o := range outputs {
		near(t, o.Name, got[o.Name], want[o.Name], 2e-5)
	}
}

// By hand: softplus(-2)+softplus(-1) and softplus(0)+softplus(-3), halved; the gradient is -z σ(-z l)/2.
func TestSigmoidCrossEntropy(t *testing.T) {
	g := graph.New()
	logits := g.Input("l", graph.Float, graph.Static(2, 2))
	loss := graph.SigmoidCrossEntropy(logits, g.Ints(0, 1))
	d := orttest.Gradients(t, loss, logits)
	out := run(t, modelOf(t, graph.Output{Name: "loss", Node: loss}, graph.Output{Name: "grad", Node: d[0]}),
		tensor.Map{"l": tensor.Of([]float32{2, -1, 0, 3}, 2, 2)})
	near(t, "loss", out["loss"], tensor.Of([]float32{0.590962}), 1e-6)
	near(t, "grad", out["grad"], tensor.Of([]float32{-0.0596015, 0.1344707, 0.25, -0.0237129}, 2, 2), 1e-6)
}
