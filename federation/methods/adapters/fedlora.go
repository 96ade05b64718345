package adapters

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// FedLoRA learns no prompt but low-rank changes of the towers' linear maps, W x + (alpha/rank) B A x, and averages
// them; the towers' weights are frozen. The texts are those of a hand-written template. Of the map MAP of all blocks of
// a tower, "TOWER/MAP/a" [blocks,in,rank] and "TOWER/MAP/b" [blocks,rank,out], B A being their product, transposed.
//
// Nguyen et al., FLoRA: Enhancing Vision-Language Models with Parameter-Efficient Federated Learning,
// arXiv 2404.15182, over Hu et al., LoRA, ICLR 2022, eq. 3. Notes:
//   - towers: text is the paper's; image and both are the public code's other variants. maps: all, or some of q, k, v,
//     out, up, down and head, the projection into the space shared with images;
//   - A begins at normal numbers of the variance 1/rank, B at 0, as in the code: the first scores are zero-shot CLIP's;
//   - loss: contrastive is the code's, CLIP's own in a batch, in which two images of one class are each other's
//     negatives; ce is cross entropy over all classes;
//   - aggregate: factors is the code's mean of A and mean of B, which is no mean of the products; product takes the
//     mean of the products and its best approximation of the same rank, by singular values (needs each client's
//     upload);
//   - owner: private leaves the changes on their clients;
//   - the code trains with AdamW at lr 1e-5 (scripts), clips gradients at norm 1 and tests the client's own weights
//     after its training: settings of train and eval.
type FedLoRA struct {
	method.FedAvg
	prompts.Template `config:",squash"`

	Towers    string   `config:"towers" in:"text|image|both" help:"towers that are adapted: text, image or both"`
	Maps      []string `config:"maps" in:"all|q|k|v|out|up|down|head" help:"linear maps that are adapted"`
	Blocks    int      `config:"blocks" in:"0..tokens" help:"how many of each tower's last blocks are adapted; 0: all"`
	Rank      int      `config:"rank" in:"1..hidden" help:"rank of each low-rank change"`
	Alpha     float64  `config:"alpha" in:"1e-9.." help:"low-rank changes are scaled by alpha/rank"`
	Objective string   `config:"loss" in:"contrastive|ce" help:"contrastive or ce (cross entropy)"`
	Aggregate string   `config:"aggregate" in:"factors|product" help:"what the server averages: factors or product"`
	Owner     string   `config:"owner" in:"shared|private" help:"owner of the low-rank changes: shared or private"`
}

var fedLoRADef = layer.Def{Name: "fedlora", Title: "FLoRA",
	Paper: "Nguyen et al., FLoRA: Enhancing Vision-Language Models with Parameter-Efficient Federated Learning, " +
		"arXiv 2404.15182",
	Default: FedLoRA{Template: prompts.AutoTemplate, Towers: "text", Maps: []string{"all"}, Rank: 2, Alpha: 16,
		Objective: "contrastive", Aggregate: "factors", Owner: "shared"}}

func (m FedLoRA) Properties() method.Properties {
	if m.Aggregate == "product" && m.Owner == "shared" {
		return method.Properties{Needs: "each client's factors, whose products it averages; set aggregate: factors"}
	}
	return m.FedAvg.Properties()
}

// site is one map of a tower with its changes in all blocks.
type site struct {
	tower    string
	of       clip.LinearMap
	first, n int // block of the first change, and how many
	in, out  int
}

func (s site) name() string { return s.tower + "/" + string(s.of) }

// sites returns the maps that are changed.
func (m FedLoRA) sites(t method.ClientSpec) (out []site) {
	for _, tower := range []struct {
		name                 string
		width, units, blocks int
	}{{prompts.TextTower, t.Width, t.TextUnits, t.TextLayers}, {prompts.ImageTower, t.VisionWidth, t.VisionUnits,
		t.VisionLayers}} {
		if m.Towers != tower.name && m.Towers != "both" {
			continue
		}
		n := tower.blocks
		if m.Blocks > 0 {
			n = min(n, m.Blocks)
		}
		for _, of := range append(clip.BlockMaps(), clip.Head) {
			if !slices.Contains(m.Maps, "all") && !slices.Contains(m.Maps, string(of)) {
				continue
			}
			s := site{tower: tower.name, of: of, first: tower.blocks - n, n: n}
			if of == clip.Head {
				s.first, s.n = 0, 1
			}
			s.in, s.out = of.Sizes(tower.width, tower.units, t.Dim)
			out = append(out, s)
		}
	}
	return out
}

func (m FedLoRA) Params(t method.ClientSpec) (out []method.Param) {
	owner := method.Shared
	if m.Owner == "private" {
		owner = method.Private
	}
	for _, s := range m.sites(t) {
		out = append(out, method.Param{Name: s.name() + "/a", Shape: []int{s.n, s.in, m.Rank},
			Std: 1 / math.Sqrt(float64(m.Rank)), Owner: owner},
			method.Param{Name: s.name() + "/b", Shape: []int{s.n, m.Rank, s.out}, Owner: owner})
	}
	return out
}

// changes returns the low-rank changes of one tower.
func (m FedLoRA) changes(s *method.Scope, tower string) (out method.BlockChanges) {
	for _, at := range m.sites(s.Task()) {
		if at.tower != tower {
			continue
		}
		a, b := nn.Unbind(s.Param(at.name()+"/a")),
			nn.Unbind(s.Param(at.name()+"/b").MulScalar(m.Alpha/float64(m.Rank)))
		for i := range a {
			out.LowRank = append(out.LowRank, method.LowRank{Block: at.first + i, Map: at.of, A: a[i], B: b[i]})
		}
	}
	return out
}

// features returns the features of the batch [B,D] and of the classes [C,D].
func (m FedLoRA) features(s *method.Scope) (image, text graph.Node) {
	t := s.Task()
	if m.Towers != prompts.ImageTower && t.TextLayers == 0 || m.Towers != prompts.TextTower && t.VisionLayers == 0 {
		n := s.Graph().Fail("backbone %s has a tower without support for low-rank changes, a ResNet or an exported "+
			"model; set options.towers, or convert a checkpoint", t.Backbone)
		return n, n
	}
	if image = s.Image(); m.Towers != prompts.TextTower {
		image = s.Vision(method.VisionPrompts{Changes: m.changes(s, prompts.ImageTower)})
	}
	if text = m.Texts(s); m.Towers != prompts.ImageTower {
		text = s.TextFeatures(method.Prompt{Template: m.Text(), Changes: m.changes(s, prompts.TextTower)})
	}
	return image, text
}

func (m FedLoRA) Logits(s *method.Scope) graph.Node { return s.Cosine(m.features(s)) }

func (m FedLoRA) Loss(s *method.Scope, logits graph.Node) graph.Node {
	if m.Objective == "ce" {
		return m.FedAvg.Loss(s, logits)
	}
	image, text := m.features(s)
	return contrastive(s, image, text)
}

// Merge averages the factors, or the products.
func (m FedLoRA) Merge(g *method.Global, ups []method.Upload) error {
	if m.Aggregate == "factors" || m.Owner == "private" {
		return m.FedAvg.Merge(g, ups)
	}
	for name, a := range g.Shared {
		site, ok := strings.CutSuffix(name, "/a")
		if !ok {
			continue
		}
		b := g.Shared[site+"/b"]
		for i := range a.Shape[0] {
			if err := m.refactor(a.Row(i), b.Row(i), ups, func(u method.Upload) (a, b *tensor.Tensor) {
				return u.Shared[site+"/a"].Row(i), u.Shared[site+"/b"].Row(i)
			}); err != nil {
				return fmt.Errorf("%s, block %d: %w", site, i, err)
			}
		}
	}
	return nil
}

// refactor sets a [in,r] and b [r,out] to U √S and √S Vᵀ of the mean of the uploads' products, of its first r
// singular values, and leaves a column of a that has none.
func (m FedLoRA) refactor(a, b *tensor.Tensor, ups []method.Upload,
	of func(method.Upload) (a, b *tensor.Tensor)) error {
	// The mean of products is one product L Rᵀ, L = [√p_1 A_1 ...], whose thin factors hold its singular values.
	total := 0.0
	for _, u := range ups {
		total += float64(u.N)
	}
	in, r, out := a.Shape[0], a.Shape[1], b.Shape[1]
	left, right := mat.NewDense(in, r*len(ups), nil), mat.NewDense(out, r*len(ups), nil)
	for k, u := range ups {
		ua, ub := of(u)
		w := math.Sqrt(float64(u.N) / total)
		for j := range r {
			for i := range in {
				left.Set(i, k*r+j, w*float64(ua.Data[i*r+j]))
			}
			for i := range out {
				right.Set(i, k*r+j, w*float64(ub.Data[j*out+i]))
			}
		}
	}
	var thin, svd mat.SVD
	if !thin.Factorize(left, mat.SVDThin) {
		return fmt.Errorf("the uploads have no singular values")
	}
	var basis, turn, core, u, v mat.Dense
	thin.UTo(&basis)
	thin.VTo(&turn)
	scale := thin.Values(nil)
	turn.Apply(func(_, j int, x float64) float64 { return x * scale[j] }, &turn)
	core.Mul(turn.T(), right.T())
	if !svd.Factorize(&core, mat.SVDThin) {
		return fmt.Errorf("the mean of the products has no singular values")
	}
	svd.UTo(&v)
	u.Mul(&basis, &v)
	v.Reset()
	svd.VTo(&v)
	values := svd.Values(nil)
	for j := range r {
		root := 0.0
		if j < len(values) {
			root = math.Sqrt(values[j])
		}
		if root == 0 { // a direction that nobody uses can still be learned from where it was
			for i := range out {
				b.Data[j*out+i] = 0
			}
			continue
		}
		root *= sign(u.ColView(j))
		for i := range in {
			a.Data[i*r+j] = float32(u.At(i, j) * root)
		}
		for i := range out {
			b.Data[j*out+i] = float32(v.At(i, j) * root)
		}
	}
	return nil
}

// sign returns the sign of a vector's entry with the largest absolute value; it makes a singular vector unique.
func sign(v mat.Vector) float64 {
	largest := 0.0
	for i := range v.Len() {
		if x := v.AtVec(i); math.Abs(x) > math.Abs(largest) {
			largest = x
		}
	}
	return math.Copysign(1, largest)
}
