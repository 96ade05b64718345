// Package methodtest holds the one suite that every method and wrapper passes, and the toy backbone and clients it runs
// on: a few numbers wide, in memory, smooth, and simple enough to write down again elsewhere.
package methodtest

import (
	"fmt"
	"math"

	"promptfed/federation/engine/spec"
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
// for a prompt ctx [T,w], with A [w,w], E [C,w], V [w] and W [w,D] from Values with salts 1 to 4, scales 1, 0.8, 1 and
// 1, and o = 0, 1, 2 for the class name at the end, in the middle and in front. W's salt grows with Salt.
type Toy struct {
	ID         string
	Width, Dim int
	Salt       int
	Layers     int // of the image tower; 0 for a ResNet
}

// ToyImage and ToyVision are the size of a toy's images and the width of its image tower's tokens.
const (
	ToyImage  = 2
	ToyVision = 4
)

// Vision gives the image features
//
//	tanh(vec(pixels + prompt) P + Σ_i (1 + n/2)/(i+1) Σ_t tanh(tokens_i,t Q)/(t+2)) R
//
// with P [12,4], Q [4,4] and R [4,D] from Values with salts 31, 32 and 33, R's growing with Salt; tokens_0 are Tokens
// and tokens_i, i > 0, Deep[i-1], and n = 1 for tokens_0 where they are Normed. Prompts that are absent add nothing.
func (b *Toy) Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error) {
	if b.Layers == 0 && len(p.Deep) > 0 || len(p.Deep) > max(0, b.Layers-1) {
		return graph.Node{}, fmt.Errorf("%d deep prompts", len(p.Deep))
	}
	if p.Pixels.OK() {
		pixels = pixels.Add(p.Pixels)
	}
	x := pixels.Reshape(-1, 3*ToyImage*ToyImage).MatMul(g.Const(Values(31, 1, 3*ToyImage*ToyImage, ToyVision)))
	for i, tokens := range append([]graph.Node{p.Tokens}, p.Deep...) {
		if !tokens.OK() {
			continue
		}
		weights := tensor.New(1, tokens.Dim(0))
		for t := range weights.Data {
			weights.Data[t] = 1 / float32(t+2) / float32(i+1)
			if i == 0 && p.Normed {
				weights.Data[t] *= 1.5
			}
		}
		x = x.Add(g.Const(weights).MatMul(tokens.MatMul(g.Const(Values(32, 1, ToyVision, ToyVision))).Tanh()))
	}
	return x.Tanh().MatMul(g.Const(Values(33+b.Salt, 1, ToyVision, b.Dim))), g.Err()
}

// ToyScale is the logit scale of Toy.
const ToyScale = 4

func (b *Toy) Name() string       { return b.ID }
func (b *Toy) WeightsDir() string { return "" }
func (b *Toy) Task() method.Task {
	return method.Task{Width: b.Width, Dim: b.Dim, Patches: 2, Scale: ToyScale, ImageSize: ToyImage,
		VisionWidth:  ToyVision,
		VisionLayers: b.Layers}
}

func (b *Toy) out(g *graph.Graph) graph.Node { return g.Const(Values(4+b.Salt, 1, b.Width, b.Dim)) }

func (b *Toy) Text(g *graph.Graph, classes []string, prompts []spec.Prompt) ([]graph.Node, error) {
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

// Sentences gives tanh(S) W with row i of S [N,w] from Values with salt 5 plus the sum of the bytes of text i.
func (b *Toy) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	rows := make([]*tensor.Tensor, len(texts))
	for i, text := range texts {
		salt := 5
		for _, c := range []byte(text) {
			salt += int(c)
		}
		rows[i] = Values(salt, 1, b.Width)
	}
	return g.Const(tensor.Stack(rows)).Tanh().MatMul(b.out(g)), g.Err()
}

// Rows are n examples as unit rows [n,D]: row i is Values with the salt, normalised, and its label (i+salt) mod
// classes.
func Rows(salt, n, dim, classes int) *spec.Features {
	x := Values(salt, 1, n, dim)
	f := &spec.Features{Views: []spec.Rows{spec.InMemory{Tensor: x}}, Class: make([]int64, n)}
	for i := range n {
		row := x.Row(i)
		norm := row.Norm()
		for j, v := range row.Data {
			row.Data[j] = float32(float64(v) / norm)
		}
		f.Class[i] = int64((i + salt) % classes)
	}
	f.Patches = []spec.Rows{spec.InMemory{Tensor: Values(salt+1000, 1/math.Sqrt(float64(dim)), n, 2, dim)}}
	f.Pixels = []spec.Rows{spec.InMemory{Tensor: Values(salt+2000, 1, n, 3, ToyImage, ToyImage)}}
	return f
}

// Classes of the toy.
var Classes = []string{"ant", "bee", "cat", "dog"}

// Width of the toy's prompts.
const Width = 6

// Clients returns toy clients with the given numbers of training examples, on two backbones in turn whose embedding
// dimensions differ. Client k's rows have the salts 100+k and, to test, 200+k.
func Clients(sizes ...int) []*spec.Client {
	return clients([]*Toy{{ID: "toy-a", Width: Width, Dim: 5, Layers: 3}, {ID: "toy-b", Width: Width, Dim: 7, Salt: 7}},
		sizes)
}

// Alike returns Clients that all have the first backbone.
func Alike(sizes ...int) []*spec.Client {
	return clients([]*Toy{{ID: "toy-a", Width: Width, Dim: 5, Layers: 3}}, sizes)
}

func clients(backbones []*Toy, sizes []int) []*spec.Client {
	var out []*spec.Client
	for k, n := range sizes {
		b := backbones[k%len(backbones)]
		out = append(out, &spec.Client{ID: k, Backbone: b, Domain: []string{"east", "west"}[k/2%2],
			Train: Rows(100+k, n, b.Dim, len(Classes)), Test: Rows(200+k, 7, b.Dim, len(Classes))})
	}
	return out
}
