// Package methodtest holds the one suite that every method and wrapper passes, and the toy backbone and clients it runs
// on: a few numbers wide, in memory, smooth, and simple enough to write down again elsewhere.
package methodtest

import (
	"math"

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Value is a number in [-1,1) made from two integers, by integer arithmetic that any language repeats exactly.
func Value(salt, i int) float64 {
	x := uint32(i)*2654435761 + uint32(salt)*40503
	x ^= x >> 16
	x *= 0x45d9f3b
	x ^= x >> 16
	return float64(x)/(1<<31) - 1
}

// Values is a tensor with element i being scale times Value(salt, i).
func Values(salt int, scale float64, shape ...int) *tensor.Tensor {
	t := tensor.New(shape...)
	for i := range t.Data {
		t.Data[i] = float32(scale * Value(salt, i))
	}
	return t
}

// Toy is a backbone whose class features are
//
//	tanh((1 + o/4) Σ_t tanh(ctx_t A)/(t+2) + E_c + 0.3 after V) W
//
// for a prompt ctx [T,w], with A [w,w], E [C,w], V [w] and W [w,D] from Values with salts 1 to 4, scales 1, 0.8, 1 and 1,
// and o = 0, 1, 2 for the class name at the end, in the middle and in front. W's salt grows with Salt.
type Toy struct {
	ID         string
	Width, Dim int
	Salt       int
}

// ToyScale is the logit scale of Toy.
const ToyScale = 4

func (b *Toy) Name() string       { return b.ID }
func (b *Toy) WeightsDir() string { return "" }
func (b *Toy) Task() method.Task {
	return method.Task{Width: b.Width, Dim: b.Dim, Patches: 2, Scale: ToyScale}
}

func (b *Toy) out(g *graph.Graph) graph.Node { return g.Const(Values(4+b.Salt, 1, b.Width, b.Dim)) }

func (b *Toy) Text(g *graph.Graph, classes []string, prompts []engine.Prompt) ([]graph.Node, error) {
	var all []graph.Node
	var sizes []int
	for _, p := range prompts {
		all = append(all, p.Ctx)
		sizes = append(sizes, p.Ctx.Dim(0))
	}
	tokens := graph.Concat(0, all...).MatMul(g.Const(Values(1, 1, b.Width, b.Width))).Tanh().Split(0, sizes...)
	names, away := g.Const(Values(2, 0.8, len(classes), b.Width)), g.Const(Values(3, 1, 1, b.Width))
	out := make([]graph.Node, len(prompts))
	for i, p := range prompts {
		weights := tensor.New(1, sizes[i])
		for t := range weights.Data {
			weights.Data[t] = 1 / float32(t+2)
		}
		o := map[string]float64{"end": 0, "middle": 1, "front": 2}[p.Position]
		m := g.Const(weights).MatMul(tokens[i]).Scale(1 + o/4)
		out[i] = m.Add(names).Add(away.Scale(0.3 * float64(p.After))).Tanh().MatMul(b.out(g))
	}
	return out, g.Err()
}

// Sentences gives tanh(S) W with S [N,w] from Values with salt 5.
func (b *Toy) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	return g.Const(Values(5, 1, len(texts), b.Width)).Tanh().MatMul(b.out(g)), g.Err()
}

// Rows are n examples as unit rows [n,D]: row i is Values with the salt, normalised, and its label (i+salt) mod classes.
func Rows(salt, n, dim, classes int) *engine.Features {
	x := Values(salt, 1, n, dim)
	f := &engine.Features{Views: []*tensor.Tensor{x}, Class: make([]int64, n)}
	for i := range n {
		row := x.Row(i)
		norm := row.Norm()
		for j, v := range row.Data {
			row.Data[j] = float32(float64(v) / norm)
		}
		f.Class[i] = int64((i + salt) % classes)
	}
	f.Patches = Values(salt+1000, 1/math.Sqrt(float64(dim)), n, 2, dim)
	return f
}

// Classes of the toy.
var Classes = []string{"ant", "bee", "cat", "dog"}

// Width of the toy's prompts.
const Width = 6

// Clients returns toy clients with the given numbers of training examples, on two backbones in turn whose joint
// dimensions differ. Client k's rows have the salts 100+k and, to test, 200+k.
func Clients(sizes ...int) []*engine.Client {
	backbones := []*Toy{{ID: "toy-a", Width: Width, Dim: 5}, {ID: "toy-b", Width: Width, Dim: 7, Salt: 7}}
	var out []*engine.Client
	for k, n := range sizes {
		b := backbones[k%2]
		out = append(out, &engine.Client{ID: k, Backbone: b, Domain: []string{"east", "west"}[k/2%2],
			Train: Rows(100+k, n, b.Dim, len(Classes)), Test: Rows(200+k, 7, b.Dim, len(Classes))})
	}
	return out
}
