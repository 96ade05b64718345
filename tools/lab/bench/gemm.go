package bench

import (
	"context"
	"fmt"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// products is a graph without a method: bare matrix products, or a tower.
type products struct {
	contestant
	session *ort.Session
	feed    tensor.Map
}

// compile returns runs of a graph on an input.
func compile(what string, n graph.Node, feed tensor.Map, flops float64, o ort.Options) (*products, error) {
	model, err := graph.Model(graph.Output{Name: "out", Node: n})
	if err != nil {
		return &products{}, err
	}

	s, err := ort.NewSession(model, o)
	p := &products{session: s, feed: feed}
	p.contestant = contestant{what: what, flops: flops, run: func(ctx context.Context) error {
		_, err := p.output(ctx)
		return err
	}}

	return p, err
}

func (p *products) output(ctx context.Context) (*tensor.Tensor, error) {
	m, err := p.session.Run(ctx, p.feed)
	return m["out"], err
}

func (p *products) close() error { return p.session.Close() }

// chain collects products and reads one number of each result, so that the optimizer removes none of them.
type chain struct {
	graph *graph.Graph
	in    tensor.Map
	sum   graph.Node
	flops float64
}

func newChain() *chain {
	g := graph.New()
	return &chain{graph: g, in: tensor.Map{}, sum: g.Scalar(0)}
}

// x returns a random input [rows,n].
func (c *chain) x(name string, rows, n int) graph.Node {
	name = fmt.Sprintf("%s%dx%d", name, rows, n)
	if c.in[name] == nil {
		c.in[name] = method.Draw(seed, 0, name, []int{rows, n}, 1)
	}
	return c.graph.Input(name, graph.Float, graph.Static(rows, n))
}

func (c *chain) add(y graph.Node, inner int) {
	c.sum = c.sum.Add(y.Slice(0, 0, 1).Slice(1, 0, 1))
	c.flops += 2 * float64(y.Dim(0)) * float64(y.Dim(1)) * float64(inner)
}

// towerProducts multiplies every weight matrix of the blocks once forwards, x wᵀ, and once backwards, x w, on the
// step's rows. Shapes, weights and order equal those of the step's matrix products. With plain it uses ONNX Runtime's
// products where the step uses promptfed's own.
func towerProducts(tower *tower, rows int, plain bool, options ort.Options) (*products, error) {
	chain, width := newChain(), tower.text().Width
	linear := func(name string, out, in int) {
		m := tower.weights.Node(chain.graph, name, out, in)
		chain.add(chain.x("x", rows, in).Linear(m, graph.Node{}), in)
		chain.add(chain.x("x", rows, out).MatMul(m), out)
	}

	for i := range tower.text().Layers {
		p := fmt.Sprintf("transformer.resblocks.%d.", i)
		if tower.weights.Has(p + "attn.in_proj_weight") {
			linear(p+"attn.in_proj_weight", 3*width, width)
		} else {
			for _, part := range []string{"q", "k", "v"} {
				linear(p+"attn."+part+"_proj.weight", width, width)
			}
		}
		linear(p+"attn.out_proj.weight", width, width)
		linear(p+"mlp.c_fc.weight", 4*width, width)
		linear(p+"mlp.c_proj.weight", width, 4*width)
	}

	if options.WeightsDir = tower.dir; plain {
		options.Products = ort.PlainProducts
	}

	return compile("matrix products", chain.sum, chain.in, chain.flops, options)
}

// squareProduct multiplies two square matrices, both of them inputs.
func squareProduct(o ort.Options) (*products, error) {
	const side = 1024
	c := newChain()
	c.add(c.x("a", side, side).MatMul(c.x("b", side, side)), side)
	return compile("square product", c.sum, c.in, c.flops, o)
}
