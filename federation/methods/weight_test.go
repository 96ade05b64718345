package methods_test

import (
	"fmt"
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// likeCLIP is a backbone with features distributed like CLIP's: 512 dimensions, class features with cosines of about
// 0.7 among each other and of 0.2 to 0.3 with images, a logit scale of 100. A prompt turns each class's feature by a
// few degrees.
type likeCLIP struct{ methodtest.Toy }

const clipDim, clipWidth, clipClasses = 512, 32, 20

func (*likeCLIP) Task() method.ClientSpec {
	return method.ClientSpec{Width: clipWidth, Dim: clipDim, Scale: 100, ImageSize: methodtest.ToyImage,
		VisionWidth: methodtest.ToyVision}
}

// unitRow returns a random direction.
func unitRow(salt int) *tensor.Tensor {
	t := methodtest.Values(salt, 1, clipDim)
	return tensor.Map{"": t}.Scale(1 / t.Norm())[""]
}

// clipClass returns a class feature without a prompt: a direction common to all, plus 0.65 of its own.
func clipClass(c int) *tensor.Tensor {
	t := unitRow(1)
	t.Axpy(0.65, unitRow(10+c))
	return t
}

func (b *likeCLIP) Text(g *graph.Graph, _ []string, prompts []method.Prompt) ([]graph.Node, error) {
	rows := make([]*tensor.Tensor, clipClasses)
	for c := range rows {
		rows[c] = clipClass(c)
	}
	base, own := g.Const(tensor.Stack(rows)), g.Const(methodtest.Values(3, 1, clipClasses, clipWidth))
	in, out := g.Const(methodtest.Values(4, 1, clipWidth, clipWidth)), g.Const(methodtest.Values(5,
		1/math.Sqrt(clipDim), clipWidth, clipDim))
	var texts []graph.Node
	for _, p := range prompts {
		h := p.Ctx.MeanKeep(0).MulScalar(10).MatMul(in).Add(own).Tanh() // [C,w]
		texts = append(texts, base.Add(h.MatMul(out).MulScalar(0.2)))
	}
	return texts, g.Err()
}

func (b *likeCLIP) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	rows := make([]*tensor.Tensor, len(texts))
	for c := range rows {
		rows[c] = clipClass(c)
	}
	return g.Const(tensor.Stack(rows)), g.Err()
}

// clipRows returns n images of five classes of a client.
func clipRows(client, n int) *spec.Features {
	x, f := tensor.New(n, clipDim), &spec.Features{Class: make([]int64, n)}
	for i := range n {
		f.Class[i] = int64((3*client + i%5) % clipClasses)
		row := unitRow(1000 + 100*client + i)
		row.Axpy(0.2, clipClass(int(f.Class[i])))
		copy(x.Row(i).Data, tensor.Map{"": row}.Scale(1 / row.Norm())[""].Data)
	}
	f.Views = []spec.RowReader{spec.InMemory{Tensor: x}}
	return f
}

// At CLIP's scale the terms of FedProto and MOON are above 1e-3 of cross entropy with their defaults, in every round
// that has a value to compare with. With the options in weak FedProto's term is below it, and MOON's is about 0.003, a
// tenth of that with its defaults.
func TestTermsWeigh(t *testing.T) {
	names := make([]string, clipClasses)
	for c := range names {
		names[c] = fmt.Sprint("class ", c)
	}
	relative := func(base, wrapper, term string, o options) (least, most float64) {
		m := methodtest.Build(t, base, []string{wrapper}, with(options{"tokens": 4}, o))
		b := &likeCLIP{methodtest.Toy{ID: "like-clip"}}
		var clients []*spec.Client
		for k := range 6 {
			clients = append(clients, &spec.Client{ID: k, Backbone: b, Train: clipRows(k, 40), Test: clipRows(k, 5)})
		}
		r := enginetest.Run(t, &spec.Experiment{Method: m, Classes: names, Template: "{}",
			Clients: clients,
			Plan:    spec.Plan{Rounds: 4, Seed: 5}, Training: spec.Training{Epochs: 2, Batch: 8,
				Optim: optim.Config{Name: "sgd", LR: 0.002, Momentum: 0.9}}},
			engine.Settings{Client: client.Settings{Terms: true}})
		least = math.Inf(1)
		for _, rec := range r.Records[1:] {
			for _, one := range rec.Terms {
				if one.Name == term {
					least, most = min(least, *one.Relative), max(most, *one.Relative)
				}
			}
		}
		t.Logf("%s+%s %v: %.2g to %.2g of cross entropy, loss %.2f to %.2f", base, wrapper, o, least, most,
			*r.Records[0].Loss, *r.Records[3].Loss)
		return least, most
	}
	for _, c := range []struct {
		base, wrapper, term string
		weak                options
		bound               float64 // above the term's share with weak
	}{
		{"coop", "fedproto", "prototype distance", options{"distance": "mean", "lambda": 0.1}, 1e-3},
		{"promptfl", "fedproto", "prototype distance", options{"distance": "mean", "lambda": 0.1}, 1e-3},
		{"promptfl", "moon", "model-contrastive", options{"centre": false}, 0.005},
	} {
		if least, _ := relative(c.base, c.wrapper, c.term, nil); !(least > max(1e-3, 5*c.bound) && least < 1) {
			t.Errorf("%s over %s: %.2g of cross entropy", c.wrapper, c.base, least)
		}
		if _, most := relative(c.base, c.wrapper, c.term, c.weak); !(most > 0 && most < c.bound) {
			t.Errorf("%s over %s with weak options: %.2g of cross entropy", c.wrapper, c.base, most)
		}
	}
}
