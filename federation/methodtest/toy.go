package methodtest

import (
	"fmt"
	"math"
	"strings"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Value returns a number in [-1,1) from two integers, by integer arithmetic that any language repeats exactly.
func Value(salt, i int) float64 {
	x := uint32(i)*2654435761 + uint32(salt)*40503
	x ^= x >> 16
	x *= 0x45d9f3b
	x ^= x >> 16
	return float64(x)/(1<<31) - 1
}

// Values returns a tensor whose element i is scale times Value(salt, i).
func Values(salt int, scale float64, shape ...int) *tensor.Tensor {
	t := tensor.New(shape...)
	for i := range t.Data {
		t.Data[i] = float32(scale * Value(salt, i))
	}
	return t
}

// Toy is a backbone whose class features are x W, x [C,w] being
//
//	tanh((1 + o/4) Σ_i Σ_t tanh(ctx_i,t A)/((t+2)(i+1)) + E_c + 0.3 after V)
//
// for a prompt ctx_0 [T,w] with deep prompts ctx_i of block i, with A [w,w], E [C,w], V [w] and W [w,D] from Values
// with salts 1 to 4, scales 1, 0.8, 1 and 1, and o = 0, 1, 2 for the class name at the end, in the middle and in front.
// W's salt grows with Salt. A prompt for each image gives features of each image, prompts for
// each class go to the features of their class. Low-rank changes come behind the
// tanh, in their order: x + (x A) B/(block+2), and of the head x W + (x A) B; the feed-forward layers have w units. A
// prompt without positions counts half, E and V are 0 without a class.
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
	ToyTokens = 7 // of an image behind the last block
)

// Vision returns the image features
//
//	tanh(vec(pixels + prompt) P + Σ_i (1 + n/2)/(i+1) Σ_t tanh(tokens_i,t Q)/(t+2)) R
//
// with P [12,4], Q [4,4] and R [4,D] from Values with salts 31, 32 and 33, R's growing with Salt; tokens_0 are Tokens
// and tokens_i, i > 0, Deep[i-1], and n = 1 for tokens_0 where they are Normed. Prompts that are absent add nothing.
// Low-rank changes come behind the outer tanh as in the text tower. Embeddings of the two patches are vec(pixels)
// [2,6] times Values with salt 34.
func (b *Toy) Vision(g *graph.Graph, pixels graph.Node, prompts method.VisionPrompts) (graph.Node, error) {
	if b.Layers == 0 && len(prompts.Deep) > 0 || len(prompts.Deep) > max(0, b.Layers-1) {
		return graph.Node{}, fmt.Errorf("%d deep prompts", len(prompts.Deep))
	}

	if prompts.Pixels.OK() {
		pixels = pixels.Add(prompts.Pixels)
	}

	if prompts.Embeddings {
		return pixels.Reshape(-1, 2, 6).MatMul(g.Const(Values(34, 1, 6, ToyVision))), g.Err()
	}

	hidden := pixels.Reshape(-1, 3*ToyImage*ToyImage).MatMul(g.Const(Values(31, 1, 3*ToyImage*ToyImage, ToyVision)))
	for i, tokens := range append([]graph.Node{prompts.Tokens}, prompts.Deep...) {
		if !tokens.OK() {
			continue
		}

		weights := tensor.New(1, tokens.Dim(-2))
		for t := range weights.Data {
			weights.Data[t] = 1 / float32(t+2) / float32(i+1)
			if i == 0 && prompts.Normed {
				weights.Data[t] *= 1.5
			}
		}

		more := g.Const(weights).MatMul(tokens.MatMul(g.Const(Values(32, 1, ToyVision, ToyVision))).Tanh())
		if tokens.Rank() == 3 { // one for each image
			more = more.Squeeze(1)
		}

		hidden = hidden.Add(more)
	}

	return changed(hidden.Tanh(), prompts.Changes, g.Const(Values(33+b.Salt, 1, ToyVision, b.Dim))), g.Err()
}

// changed returns x W with low-rank changes; those of the head come last, before adapters, x + A(x)/(block+2).
func changed(x graph.Node, c method.BlockChanges, w graph.Node) graph.Node {
	more := x.Graph().Scalar(0)
	for _, l := range c.LowRank {
		if d := x.MatMul(l.A).MatMul(l.B); l.Map == clip.Head {
			more = more.Add(d)
		} else {
			x = x.Add(d.MulScalar(1 / float64(l.Block+2)))
		}
	}

	for _, a := range c.Adapters {
		x = x.Add(a.Apply(x).MulScalar(1 / float64(a.Block+2)))
	}

	return x.MatMul(w).Add(more)
}

// ToyScale is the logit scale of Toy.
const ToyScale = 4

func (b *Toy) Name() string       { return b.ID }
func (b *Toy) WeightsDir() string { return "" }

// Task describes towers of ToyVision and Width units, with two patches in an image. The text tower has three blocks.
func (b *Toy) Task() method.ClientSpec {
	return method.ClientSpec{Width: b.Width, Dim: b.Dim, Patches: 2, Scale: ToyScale, ImageSize: ToyImage,
		VisionWidth:  ToyVision,
		VisionLayers: b.Layers, VisionUnits: ToyVision, Tokens: ToyTokens, TextLayers: 3, TextUnits: b.Width}
}

func (b *Toy) out(g *graph.Graph) graph.Node { return g.Const(Values(4+b.Salt, 1, b.Width, b.Dim)) }

func (b *Toy) Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error) {
	names, away := g.Const(Values(2, 0.8, len(classes), b.Width)), g.Const(Values(3, 1, 1, b.Width))
	inner := g.Const(Values(1, 1, b.Width, b.Width))
	out := make([]graph.Node, len(prompts))
	for i, prompt := range prompts {
		var hidden graph.Node
		if !prompt.Ctx.OK() {
			hidden = b.sentences(g, prompt.Template, classes).Tanh()
		} else {
			o := map[string]float64{"end": 0, "middle": 1, "front": 2}[prompt.Position]
			hidden = names.Add(away.MulScalar(0.3 * float64(prompt.ReadOffset)))
			if prompt.NoClass {
				hidden = g.Const(tensor.New(1, b.Width))
			}

			for k, ctx := range append([]graph.Node{prompt.Ctx}, prompt.Deep...) {
				if ctx.OK() {
					weights, o := tensor.New(1, ctx.Dim(-2)), o
					if prompt.NoPositions && k == 0 {
						o = -2
					}
					for t := range weights.Data {
						weights.Data[t] = float32(1+o/4) / float32((t+2)*(k+1))
					}
					sum := g.Const(weights).MatMul(ctx.MatMul(inner).Tanh())
					if prompt.PerClass { // [C,1,w]
						sum = sum.Squeeze(1)
					}
					hidden = hidden.Add(sum)
				}
			}

			hidden = hidden.Tanh()
		}

		out[i] = changed(hidden, prompt.Changes, b.out(g))
	}

	return out, g.Err()
}

// StepBytes returns four bytes for each number of a prompt and each class.
func (b *Toy) StepBytes(classes []string, p method.Prompt) (int, error) {
	return 4 * len(classes) * p.Ctx.Dim(-2) * b.Width, nil
}

// Words returns Values with salt 9 plus the sum of the bytes of a text, a row for each word.
func (b *Toy) Words(text string) (*tensor.Tensor, error) {
	return Values(9+sumOf(text), 0.5, len(strings.Fields(text)), b.Width), nil
}

func sumOf(text string) (sum int) {
	for _, c := range []byte(text) {
		sum += int(c)
	}
	return sum
}

// Sentences returns tanh(S) W with row i of S [N,w] from Values with salt 5 plus the sum of the bytes of text i.
func (b *Toy) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	return b.sentences(g, "{}", texts).Tanh().MatMul(b.out(g)), g.Err()
}

// sentences returns S of texts from a template.
func (b *Toy) sentences(g *graph.Graph, template string, names []string) graph.Node {
	rows := make([]*tensor.Tensor, len(names))
	for i, name := range names {
		rows[i] = Values(5+sumOf(strings.ReplaceAll(template, "{}", name)), 1, b.Width)
	}
	return g.Const(tensor.Stack(rows))
}

// Rows returns n examples as unit rows [n,D]: row i is Values with the salt, normalised, and its label (i+salt) mod
// classes.
func Rows(salt, n, dim, classes int) *spec.Features {
	x := Values(salt, 1, n, dim)
	features := &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: x}}, Class: make([]int64, n)}
	for i := range n {
		row := x.Row(i)
		norm := row.Norm()
		for j, v := range row.Data {
			row.Data[j] = float32(float64(v) / norm)
		}
		features.Class[i] = int64((i + salt) % classes)
	}

	features.Patches = []spec.RowReader{spec.InMemory{Tensor: Values(salt+1000, 1/math.Sqrt(float64(dim)), n, 2, dim)}}
	features.Pixels = []spec.RowReader{spec.InMemory{Tensor: Values(salt+2000, 1, n, 3, ToyImage, ToyImage)}}
	features.Tokens = []spec.RowReader{spec.InMemory{Tensor: Values(salt+3000, 1, n, ToyTokens, ToyVision)}}
	return features
}

// Classes of the toy.
var Classes = []string{"ant", "bee", "cat", "dog"}

// Width of the toy's prompts.
const Width = 6

// Clients returns toy clients with the given numbers of training examples, on two backbones in turn whose embedding
// dimensions differ. Client k's rows have the salts 100+k and, to test, 200+k.
func Clients(sizes ...int) []*spec.Client { return clients(false, sizes...) }

// ClientsOfOneBackbone returns Clients that all have the first backbone.
func ClientsOfOneBackbone(sizes ...int) []*spec.Client { return clients(true, sizes...) }

func clients(alike bool, sizes ...int) (out []*spec.Client) {
	backbones := []*Toy{{ID: "toy-a", Width: Width, Dim: 5, Layers: 3}, {ID: "toy-b", Width: Width, Dim: 7, Salt: 7}}
	if alike {
		backbones = backbones[:1]
	}

	for k, n := range sizes {
		b := backbones[k%len(backbones)]
		out = append(out, &spec.Client{ID: k, Backbone: b, Domain: []string{"east", "west"}[k/2%2],
			Train: Rows(100+k, n, b.Dim, len(Classes)), Test: Rows(200+k, 7, b.Dim, len(Classes))})
	}
	return out
}
