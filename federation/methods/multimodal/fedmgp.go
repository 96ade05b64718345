package multimodal

import (
	"cmp"
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// FedMGP gives each client G groups of its own, each a text prompt and a prompt of the image tower, "text/groups"
// [G,tokens,w] and "image/groups" [G,P,v], and exchanges some of them. With t^j and f^j(x) the unit features of group
// j, and s = exp(logit_scale), a client learns
//
//	1/G Σ_j CE(s f^j·t^j, y) + lambda (D_text + D_image),  D = mean over j<k of cos(t^j_c, t^k_c), and of f^j, f^k
//
// (eq. 3-5) and scores with the mean over groups. After its steps it draws n groups of texts and n of images without
// replacement, with the probabilities softmax(sim/tau) among those that are left; sim_j is the largest cosine of its
// prompt, flat and with its words, with last round's global ones (eq. 7-8; in round 0 all are alike). It uploads them
// in the order of drawing as the slots "text/global" [n,tokens,w] and "image/global", the server averages slot by slot
// (eq. 9), and the average takes the place of what was drawn: "text/drawn" [n,G], private too, has 1 where slot i came
// from group j.
//
// Bo et al., FedMGP: Personalized Federated Learning with Multi-Group Text-Visual Prompts, NeurIPS 2025, eq. 3-9,
// algorithm 1. Notes:
//   - a client is tested with the average in place of the groups that it drew (global), or with the groups that it
//     trained (personal). It reads the average that it was sent last; where it sat rounds out, paper and code give it
//     that of the round it took part in;
//   - with 2 tokens "a photo" is learned and "of a" stays behind it, as in the code; what is learned, and sent, is
//     what is added to the words;
//   - prompt tokens of images pass the image tower's first layer norm, without positions;
//   - the code adds the mean absolute difference of two groups' features, and so shrinks it, in place of the cosine;
//   - the server weighs clients by examples (paper) or alike (weighting: uniform, the code). The code draws with a
//     seed that does not know the run's, in round 0 the same groups of texts and of images;
//   - vision_tokens: 0 leaves the image tower unchanged.
type FedMGP struct {
	aggregate.WeightedMean `config:",squash"`
	prompts.OffsetContext  `config:",squash"`

	Groups    int     `config:"groups" in:"1..tokens" help:"G, groups of prompts of each client"`
	Vision    int     `config:"vision_tokens" in:"0..tokens" help:"image prompt tokens in each group; 0: none"`
	VisionStd float64 `config:"vision_std" in:"0.." help:"standard deviation of the image tower's initial prompts"`
	Exchanged int     `config:"exchanged" in:"1..groups" help:"groups of prompts that a client sends in a round"`
	Lambda    float64 `config:"lambda" in:"0.." help:"weight of the similarity of groups in the loss; 0 removes it"`
	Score     string  `config:"score" in:"scores|features" help:"what a test averages over groups"`
	Tau       float64 `config:"tau" in:"1e-3.." help:"temperature of the draw of groups"`
}

var fedMGPDef = layer.Def{Name: "fedmgp", Title: "FedMGP",
	Paper: "Bo et al., FedMGP: Personalized Federated Learning with Multi-Group Text-Visual Prompts, NeurIPS 2025",
	Traffic: layer.Traffic{Formula: "2 n (m d + P v); n = m = P = 2, v = 3/2 d", // its table 3, of ViT-B
		Numbers: func(s layer.Sizes) int { return 20 * s.Width }},
	Default: FedMGP{WeightedMean: aggregate.ExamplesMean, OffsetContext: prompts.OffsetContext{Tokens: 2,
		Words: prompts.PhotoPrompt, Std: 0.01}, Groups: 5, Vision: 2, VisionStd: 0.02, Exchanged: 2, Lambda: 1, Tau: 1,
		Score: "scores"}}

// Names behind a tower: its groups, the slots, and what these were drawn from.
const (
	mgpGroups = "/groups"
	mgpSlots  = "/global"
	mgpDrawn  = "/drawn"
)

// Properties declares the mean of option weighting. It takes the server's step and the start of a round: an upload has
// the groups that were drawn, no moves of what was sent.
func (m FedMGP) Properties() method.Properties {
	properties := m.WeightedMean.Properties()
	properties.Roles = map[method.Role]string{method.ServerStep: "", method.RoundStart: ""}
	return properties
}

func (m FedMGP) towers() []string {
	if m.Vision == 0 {
		return []string{prompts.TextTower}
	}
	return []string{prompts.TextTower, prompts.ImageTower}
}

// Params declares of each tower the slots, shared, which begin at zeros and belong to no group yet; the groups,
// private, of which every client begins with the same draw (algorithm 1); and what the slots were drawn from, private.
func (m FedMGP) Params(t method.ClientSpec) (out []method.Param) {
	for _, tower := range m.towers() {
		prompt, std, words := []int{m.Tokens, t.Width}, m.Std, m.Words
		if tower == prompts.ImageTower {
			prompt, std, words = []int{m.Vision, t.VisionWidth}, m.VisionStd, ""
		}
		out = append(out,
			method.Param{Name: tower + mgpSlots, Shape: append([]int{m.Exchanged}, prompt...), Words: words},
			method.Param{Name: tower + mgpGroups, Shape: append([]int{m.Groups}, prompt...), Std: std,
				Owner: method.Private, Words: words}.Alike(),
			method.Param{Name: tower + mgpDrawn, Shape: []int{m.Exchanged, m.Groups}, Owner: method.Private})
	}

	return out
}

// returned returns the groups of a tower with the average in place of the groups that were drawn.
func (m FedMGP) returned(scope *method.Scope, tower string) graph.Node {
	own, slots := scope.TrainedValue(tower+mgpGroups), scope.TrainedValue(tower+mgpSlots).Detach()
	drawn := scope.Param(tower + mgpDrawn).Detach()
	shape, _ := own.Shape().Ints()
	flat := func(n graph.Node) graph.Node { return n.Reshape(-1, shape[1]*shape[2]) }
	kept := drawn.Sum(0).Neg().AddScalar(1).Reshape(-1, 1) // [G,1]
	return flat(own).Mul(kept).Add(drawn.Transpose(1, 0).MatMul(flat(slots))).Reshape(shape...)
}

// features returns the features of texts [C,D] and of images [B,D] of each group.
func (m FedMGP) features(scope *method.Scope) (texts, images []graph.Node) {
	for _, ctx := range nn.Unbind(m.returned(scope, prompts.TextTower)) {
		texts = append(texts, scope.Text(m.AddWords(scope, ctx)))
	}

	if m.Vision == 0 {
		return texts, slices.Repeat([]graph.Node{scope.Image()}, m.Groups)
	}

	if err := prompts.TokensUnsupported(scope.Task(), false); err != "" {
		return texts, slices.Repeat([]graph.Node{scope.Graph().Fail("%s; set options.vision_tokens to 0", err)},
			m.Groups)
	}

	for _, tokens := range nn.Unbind(m.returned(scope, prompts.ImageTower)) {
		images = append(images, scope.Vision(method.VisionPrompts{Tokens: tokens}))
	}

	return texts, images
}

// Logits are the mean over groups of their scores, the average in place of the groups that were drawn last. With score:
// features they compare the means of the groups' features, made unit again.
func (m FedMGP) Logits(scope *method.Scope) graph.Node {
	texts, images := m.features(scope)
	if m.Score == "features" {
		return scope.Cosine(graph.Stack(images...).Mean(0).L2Normalize(), graph.Stack(texts...).Mean(0).L2Normalize())
	}

	scores := make([]graph.Node, m.Groups)
	for j := range scores {
		scores[j] = scope.Cosine(images[j], texts[j])
	}

	return graph.Stack(scores...).Mean(0)
}

// Loss is the mean cross entropy of the groups, each by its own scores, and the similarity of the groups of each tower
// (eq. 3-5), which is left out with lambda: 0 or one group.
func (m FedMGP) Loss(scope *method.Scope, _ graph.Node) graph.Node {
	texts, images := m.features(scope)
	sum := scope.Graph().Scalar(0)
	for j := range texts {
		sum = sum.Add(scope.LabelLoss(scope.Cosine(images[j], texts[j])))
	}

	loss := scope.Term(method.CrossEntropy, sum.MulScalar(1/float64(m.Groups)))
	if m.Lambda == 0 || m.Groups == 1 {
		return loss
	}

	loss = loss.Add(scope.Term("likeness of texts", likeness(texts).MulScalar(m.Lambda)))
	if m.Vision > 0 {
		loss = loss.Add(scope.Term("likeness of images", likeness(images).MulScalar(m.Lambda)))
	}

	return loss
}

// likeness returns the mean over pairs of groups, and over rows, of their cosine.
func likeness(groups []graph.Node) graph.Node {
	sum, pairs := groups[0].Graph().Scalar(0), 0.0
	for j, a := range groups {
		for _, b := range groups[:j] {
			sum, pairs = sum.Add(a.Mul(b).Sum(-1).Mean()), pairs+1
		}
	}
	return sum.MulScalar(1 / pairs)
}

// Begin copies the average into the groups that were drawn, so that steps train them like the other groups.
func (m FedMGP) Begin(local *method.Local) error {
	for _, tower := range m.towers() {
		drawn := local.Private[tower+mgpDrawn]
		for i := range m.Exchanged {
			if j := slices.Index(drawn.Row(i).Data, 1); j >= 0 {
				copy(local.Private[tower+mgpGroups].Row(j).Data, local.Received[tower+mgpSlots].Row(i).Data)
			}
		}
		local.Private[tower+mgpDrawn] = tensor.New(drawn.Shape...)
	}

	return nil
}

// AdjustGradients freezes the tensors that the server sent and the drawn ones.
func (m FedMGP) AdjustGradients(local *method.Local, _ tensor.Map) error {
	for _, tower := range m.towers() {
		local.Frozen = append(local.Frozen, tower+mgpSlots, tower+mgpDrawn)
	}
	return nil
}

// Finish draws the groups to upload.
func (m FedMGP) Finish(local *method.Local, up *method.Upload) error {
	for _, tower := range m.towers() {
		own, last := local.Private[tower+mgpGroups], local.Received[tower+mgpSlots]
		sims := make([]float64, m.Groups)
		if local.Round > 0 {
			all := tensor.Of(append(slices.Clone(own.Data), last.Data...), append([]int{m.Groups + m.Exchanged},
				own.Shape[1:]...)...)
			if tower == prompts.TextTower {
				var err error
				if all, err = local.Eval(m.worded); err != nil {
					return err
				}
			}

			for j := range sims {
				sims[j] = -1
				for i := range m.Exchanged {
					sims[j] = max(sims[j], cosine(all.Row(j).Data, all.Row(m.Groups+i).Data))
				}
			}
		}

		slots, drawn := tensor.New(last.Shape...), tensor.New(m.Exchanged, m.Groups)
		for i, j := range m.draw(local.Draws.Uniform(local.Rand, tower+mgpDrawn, m.Groups), sims) {
			copy(slots.Row(i).Data, own.Row(j).Data)
			drawn.Row(i).Data[j] = 1
		}

		up.Shared[tower+mgpSlots], local.Private[tower+mgpDrawn] = slots, drawn
	}

	return nil
}

// worded returns the text prompts with their words, [G+n,tokens,w]: the client's own, then last round's global ones.
func (m FedMGP) worded(scope *method.Scope) graph.Node {
	all := append(nn.Unbind(scope.TrainedValue(prompts.TextTower+mgpGroups)),
		nn.Unbind(scope.Received().TrainedValue(prompts.TextTower+mgpSlots))...)
	for i, ctx := range all {
		all[i] = m.AddWords(scope, ctx).Slice(0, 0, m.Tokens)
	}
	return graph.Stack(all...)
}

// draw returns groups in the order of drawing: those with the largest sim/tau plus noise of Gumbel's distribution,
// which is the draw without replacement (Kool et al., Stochastic Beams and Where to Find Them, ICML 2019, section 2.3).
// u are random numbers from [0,1).
func (m FedMGP) draw(u, sims []float64) []int {
	key := make([]float64, m.Groups)
	for j, s := range sims {
		key[j] = s/m.Tau - math.Log(-math.Log(u[j]))
	}
	return tensor.Order(m.Groups, func(a, b int) int { return cmp.Compare(key[b], key[a]) })[:m.Exchanged]
}

// cosine returns the cosine of two vectors; 0 where one of them is 0.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		y := float64(b[i])
		ab, aa, bb = ab+float64(x)*y, aa+float64(x)*float64(x), bb+y*y
	}

	if aa == 0 || bb == 0 {
		return 0
	}

	return ab / math.Sqrt(aa*bb)
}
