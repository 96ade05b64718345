package adapters

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// PFedMMA learns no prompt but an adapter beside each of the last blocks of both towers,
//
//	x + block(x) + alpha up(relu(mid(relu(down(LN1 x))))),
//
// x + block(x) being the output of the block without adapter: down and up stay on their client, mid is of both towers
// together, block by block from the top, and the server averages it. The texts are those of a hand-written template.
//
// Islam et al., pFedMMA: Personalized Federated Fine-Tuning with Multi-Modal Adapter for Vision-Language Models,
// arXiv 2507.05394. Notes:
//   - 8 blocks, 5 to 12 of ViT-B, rank 32, alpha 0.001, ReLU and the branch beside the whole block are the public
//     code's;
//   - grad_rescale: true is the code's too and not in the paper: train adapters with the gradients that alpha 1 would
//     give, while the gradient that goes on down the tower is exact; what the optimizer sees is then no derivative;
//   - the code's tests take the class features that the first client tested had, for every client and round; here each
//     client is tested with its own.
type PFedMMA struct {
	method.FedAvg
	prompts.Template `config:",squash"`

	Towers  string  `config:"towers" in:"text|image|both" help:"towers that get adapters: text, image or both"`
	Blocks  int     `config:"blocks" in:"1..tokens" help:"how many of each tower's last blocks get an adapter"`
	Rank    int     `config:"rank" in:"1..hidden" help:"hidden units of an adapter"`
	Alpha   float64 `config:"alpha" in:"0.." help:"weight of an adapter's output"`
	Rescale bool    `config:"grad_rescale" help:"train adapters with the gradients that alpha 1 would give"`
}

var pFedMMADef = layer.Def{Name: "pfedmma", Title: "pFedMMA",
	Paper:   "Islam et al., pFedMMA: Personalized Federated Fine-Tuning with Multi-Modal Adapter, arXiv 2507.05394",
	Default: PFedMMA{Template: prompts.AutoTemplate, Towers: "both", Blocks: 8, Rank: 32, Alpha: 1e-3, Rescale: true}}

// adapted returns the towers with adapters, and the number of blocks with an adapter.
func (m PFedMMA) adapted(t method.ClientSpec) (adapted []tower, blocks int) {
	adapted, blocks = towers(m.Towers, t), m.Blocks
	for _, tower := range adapted {
		blocks = min(blocks, tower.blocks)
	}
	return adapted, blocks
}

// Params declares "mid/w" [blocks,rank,rank], shared, and of each adapted tower "TOWER/down/w" [blocks,rank,width] and
// "TOWER/up/w" [blocks,width,rank], private, all with biases "/b". Weights begin at normal numbers of the variance
// 2/out (Kaiming, fan out), biases at 0, as in the code.
func (m PFedMMA) Params(t method.ClientSpec) (out []method.Param) {
	towers, n := m.adapted(t)
	layer := func(name string, to, from int, o method.Owner) {
		out = append(out, method.Param{Name: name + "/w", Shape: []int{n, to, from}, Std: math.Sqrt(2 / float64(to)),
			Owner: o}, method.Param{Name: name + "/b", Shape: []int{n, to}, Owner: o})
	}

	layer("mid", m.Rank, m.Rank, method.Shared)
	for _, tower := range towers {
		layer(tower.name+"/down", m.Rank, tower.width, method.Private)
		layer(tower.name+"/up", tower.width, m.Rank, method.Private)
	}

	return out
}

// changes returns the adapters of a tower's last n blocks.
func (m PFedMMA) changes(scope *method.Scope, tower tower, n int) (out method.BlockChanges) {
	var parts [][]method.Layer
	for _, name := range []string{tower.name + "/down", "mid", tower.name + "/up"} {
		w, b := nn.Unbind(scope.Param(name+"/w")), nn.Unbind(scope.Param(name+"/b"))
		part := make([]method.Layer, n)
		for i := range part {
			part[i] = method.Layer{W: w[i], B: b[i]}
		}
		parts = append(parts, part)
	}

	for i := range n {
		out.Adapters = append(out.Adapters, method.Adapter{Block: tower.blocks - n + i, Place: clip.Parallel,
			Scale: m.Alpha, Rescale: m.Rescale, Layers: []method.Layer{parts[0][i], parts[1][i], parts[2][i]}})
	}

	return out
}

// Logits compares images with the texts of the template, the towers of option towers with their adapters, the other one
// without. A tower that cannot take adapters fails the graph.
func (m PFedMMA) Logits(scope *method.Scope) graph.Node {
	towers, n := m.adapted(scope.Task())
	if n == 0 {
		return scope.Graph().Fail("backbone %s has a tower without support for adapters, a ResNet or an exported "+
			"model; set options.towers, or convert a checkpoint", scope.Task().Backbone)
	}

	image, text := scope.Image(), graph.Node{}
	for _, tower := range towers {
		if c := m.changes(scope, tower, n); tower.name == prompts.TextTower {
			text = scope.TextFeatures(method.Prompt{Template: m.Text(), Changes: c})
		} else {
			image = scope.Vision(method.VisionPrompts{Changes: c})
		}
	}

	if !text.OK() {
		text = m.Texts(scope)
	}

	return scope.Cosine(image, text)
}
