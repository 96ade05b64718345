package adapters

import (
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// FedLoRA learns no prompt but low-rank changes of the towers' linear maps, W x + (alpha/rank) B A x, and averages
// them; the towers' weights are frozen. The texts are those of a hand-written template.
//
// Nguyen et al., FLoRA: Enhancing Vision-Language Models with Parameter-Efficient Federated Learning,
// arXiv 2404.15182, over Hu et al., LoRA, ICLR 2022, eq. 3. Notes:
//   - towers: text is the paper's; image and both are the public code's other variants. maps: all, or some of q, k, v,
//     out, up, down and head, the projection into the space shared with images;
//   - the server averages A and B, which is no mean of the products, as in the code;
//   - the code trains with AdamW at lr 1e-5 (scripts), clips gradients at norm 1 and tests the client's own weights
//     after its training: settings of train and eval.
type FedLoRA struct {
	method.FedAvg
	prompts.Template `config:",squash"`

	Towers    string   `config:"towers" in:"text|image|both" help:"towers that are adapted: text, image or both"`
	Maps      []string `config:"maps" in:"all|q|k|v|out|up|down|head" help:"linear maps that are adapted"`
	Rank      int      `config:"rank" in:"1..hidden" help:"rank of each low-rank change"`
	Alpha     float64  `config:"alpha" in:"1e-9.." help:"low-rank changes are scaled by alpha/rank"`
	Objective string   `config:"loss" in:"contrastive|ce" help:"contrastive or ce (cross entropy)"`
}

var fedLoRADef = layer.Def{Name: "fedlora", Title: "FLoRA",
	Paper: "Nguyen et al., FLoRA: Enhancing Vision-Language Models with Parameter-Efficient Federated Learning, " +
		"arXiv 2404.15182",
	Default: FedLoRA{Template: prompts.AutoTemplate, Towers: "text", Maps: []string{"all"}, Rank: 2, Alpha: 16,
		Objective: "contrastive"}}

// tower is a tower with the width of its tokens and of its blocks' hidden layers.
type tower struct {
	name                 string
	width, units, blocks int
}

// towers returns the towers that an option text|image|both names.
func towers(option string, client method.ClientSpec) []tower {
	text := tower{prompts.TextTower, client.Width, client.TextUnits, client.TextLayers}
	image := tower{prompts.ImageTower, client.VisionWidth, client.VisionUnits, client.VisionLayers}
	return slices.DeleteFunc([]tower{text, image}, func(t tower) bool { return option != t.name && option != "both" })
}

// site is one map of a tower with its changes in all blocks.
type site struct {
	tower           string
	layer           clip.LinearMap
	blocks, in, out int
}

func (s site) name() string { return s.tower + "/" + string(s.layer) }

// sites returns the maps that are changed.
func (m FedLoRA) sites(client method.ClientSpec) (out []site) {
	for _, tower := range towers(m.Towers, client) {
		for _, linearMap := range append(clip.BlockMaps(), clip.Head) {
			if !slices.Contains(m.Maps, "all") && !slices.Contains(m.Maps, string(linearMap)) {
				continue
			}
			s := site{tower: tower.name, layer: linearMap, blocks: tower.blocks}
			if linearMap == clip.Head {
				s.blocks = 1
			}
			s.in, s.out = linearMap.Sizes(tower.width, tower.units, client.Dim)
			out = append(out, s)
		}
	}

	return out
}

// Params declares of the map MAP of all blocks of a tower "TOWER/MAP/a" [blocks,in,rank] and "TOWER/MAP/b"
// [blocks,rank,out], B A being their product, transposed; the head counts as one block. All are shared. A begins at
// normal numbers of the variance 1/rank, B at 0, as in the code: the first scores are zero-shot CLIP's.
func (m FedLoRA) Params(t method.ClientSpec) (out []method.Param) {
	for _, s := range m.sites(t) {
		out = append(out, method.Param{Name: s.name() + "/a", Shape: []int{s.blocks, s.in, m.Rank},
			Std: 1 / math.Sqrt(float64(m.Rank))},
			method.Param{Name: s.name() + "/b", Shape: []int{s.blocks, m.Rank, s.out}})
	}
	return out
}

// changes returns the low-rank changes of one tower.
func (m FedLoRA) changes(scope *method.Scope, tower string) (out method.BlockChanges) {
	for _, at := range m.sites(scope.Task()) {
		if at.tower != tower {
			continue
		}
		a, b := nn.Unbind(scope.Param(at.name()+"/a")),
			nn.Unbind(scope.Param(at.name()+"/b").MulScalar(m.Alpha/float64(m.Rank)))
		for i := range a {
			out.LowRank = append(out.LowRank, method.LowRank{Block: i, Map: at.layer, A: a[i], B: b[i]})
		}
	}

	return out
}

// features returns the features of the batch [B,D] and of the classes [C,D].
func (m FedLoRA) features(scope *method.Scope) (image, text graph.Node) {
	t := scope.Task()
	if m.Towers != prompts.ImageTower && t.TextLayers == 0 || m.Towers != prompts.TextTower && t.VisionLayers == 0 {
		n := scope.Graph().Fail("backbone %s has a tower without support for low-rank changes, a ResNet or an "+
			"exported model; set options.towers, or convert a checkpoint", t.Backbone)
		return n, n
	}

	if image = scope.Image(); m.Towers != prompts.TextTower {
		image = scope.Vision(method.VisionPrompts{Changes: m.changes(scope, prompts.ImageTower)})
	}

	if text = m.Texts(scope); m.Towers != prompts.ImageTower {
		text = scope.TextFeatures(method.Prompt{Template: m.Text(), Changes: m.changes(scope, prompts.TextTower)})
	}

	return image, text
}

// Logits compares images with the texts of the template. Towers that option towers names run with the low-rank changes,
// the other one as it is; a tower that cannot take changes fails the graph.
func (m FedLoRA) Logits(scope *method.Scope) graph.Node { return scope.Cosine(m.features(scope)) }

// Loss is with loss: contrastive, as in the code, CLIP's own in a batch, in which two images of one class are each
// other's negatives. With loss: ce it is the cross entropy over all classes.
func (m FedLoRA) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	if m.Objective == "ce" {
		return m.FedAvg.Loss(scope, logits)
	}
	image, text := m.features(scope)
	return contrastive(scope, image, text)
}
