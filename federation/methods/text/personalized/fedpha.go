package personalized

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/projection"
	"promptfed/runtime/graph"
)

// FedPHA learns a shared prompt "global" and a private one "local", whose length may differ from client to client. It
// pulls the private text features towards those of the private prompt projected off the shared one (eq. 8-11), pushes
// them away from the shared ones (eq. 12), and trains both prompts on cross entropy (eq. 13).
//
// Fang et al., FedPHA: Federated Prompt Learning for Heterogeneous Client Adaptation, ICML 2025, eq. 5-13, algorithm 1.
// SDFed (arXiv 2602.08590) is the same computation with other constants.
//
// Where paper and public code part ways, both are options, the paper first:
//   - projector: eq9 keeps the last floor((1-ratio)w) right singular vectors, alg1 (algorithm 1) the columns from
//     (1-ratio)w on, def1 (SDFed's definition 1) those from ratio w on, code keeps columns int(T(1-ratio)).. of the
//     reduced SVD, exact-null is the basis-free I - V_r V_rᵀ. A prompt of T < w tokens determines no more than T of
//     the w directions: the last w-T are an arbitrary basis of its null space, as LAPACK completes it close to the
//     coordinate axes, so that eq9 is nearly the same mask of channels for every prompt (with T 16, w 512 and ratio 0.8
//     the subspaces kept for two unrelated prompts overlap by 0.90, by chance it were 0.20). exact-null is ours: it
//     removes the prompt's own directions and nothing else, which is what eq. 8-10 say the projection is for;
//   - projector_grad: detach, or through as in the code (the paper is silent);
//   - svd_every: round as section 4.2 and table 3 have it, epoch as the e of algorithm 1 and eq. 4, or step as the code
//     does; between two decompositions the projector is a constant, also with projector_grad: through;
//   - pull: sum-per-class is eq. 11 for each class, averaged over classes; mean is the code's mean over all elements;
//   - eq. 12 is for each class, averaged over classes, as in the code;
//   - eot: own reads every sequence at its own end, longest reads all at the end of the longest prompt's text, as the
//     code does.
type FedPHA struct {
	method.FedAvg
	Global        int     `config:"global_tokens" in:"1..tokens" help:"length of the shared prompt in tokens"`
	Local         []int   `config:"local_tokens" in:"1..tokens" help:"length of the private prompt, or one a client"`
	Ratio         float64 `config:"ratio" in:"0<..1" help:"rho of eq. 9, share of directions that are removed"`
	Alpha         float64 `config:"alpha" in:"-1e9.." help:"alpha of eq. 12, margin of the push term"`
	Projector     string  `config:"projector" in:"eq9|alg1|def1|exact-null|code" help:"what the projection keeps"`
	ProjectorGrad string  `config:"projector_grad" in:"detach|through" help:"gradient of the projector, where computed"`

	SVDEvery method.Frequency `config:"svd_every" in:"round|epoch|step" help:"how often the projector is computed"`

	Pull string  `config:"pull" in:"sum-per-class|mean" help:"reduction of the pull term: sum-per-class or mean"`
	EOT  string  `config:"eot" in:"own|longest" help:"position of the end of text: own (of each prompt) or longest"`
	Std  float64 `config:"init_std" in:"0.." help:"standard deviation of the initial prompts"`
}

var fedPHADef = layer.Def{Name: "fedpha", Title: "FedPHA",
	Paper:   "Fang et al., Federated Prompt Learning for Heterogeneous Client Adaptation, ICML 2025",
	Default: fedPHA}

var fedPHA = FedPHA{Global: 16, Local: []int{16}, Ratio: 0.8, Alpha: 1, Projector: projection.Eq9,
	ProjectorGrad: "detach", SVDEvery: method.EveryRound, Pull: "sum-per-class", EOT: "own", Std: 0.02}

// Params declares "global" [global_tokens,w], shared, and "local" [T,w], private, where clients take their T from
// local_tokens in turn.
func (m FedPHA) Params(t method.ClientSpec) []method.Param {
	return []method.Param{
		{Name: "global", Shape: []int{m.Global, t.Width}, Std: m.Std, Owner: method.Shared},
		{Name: "local", Shape: []int{m.Local[t.Client%len(m.Local)], t.Width}, Std: m.Std, Owner: method.Private},
	}
}

// text returns a prompt's features [C,D], read at the position of option eot.
func (m FedPHA) text(scope *method.Scope, ctx graph.Node) graph.Node {
	if m.EOT == "own" {
		return scope.Text(ctx)
	}
	longest := max(m.Global, slices.Max(m.Local))
	return scope.TextFeatures(method.Prompt{Ctx: ctx, ReadOffset: longest - ctx.Dim(0)})
}

// Logits compares images with the class features of the private prompt alone, which is what is tested.
func (m FedPHA) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(scope.Image(), m.text(scope, scope.Param("local")))
}

// Loss is the sum of the cross entropies of both prompts, of the pull (eq. 11) and of the push (eq. 12), without
// weights.
func (m FedPHA) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	global, local := scope.Param("global"), scope.Param("local")
	// [C,D] each
	tg, tl, tp := m.text(scope, global), m.text(scope, local), m.text(scope, m.project(scope, local, global))

	loss := scope.CrossEntropy(logits, "local").Add(scope.CrossEntropy(scope.Cosine(scope.Image(), tg), "global"))
	return loss.Add(scope.Term("pull", m.pull(tl, tp))).Add(scope.Term("push", m.push(tl, tg)))
}

func (m FedPHA) pull(tl, tp graph.Node) graph.Node {
	if m.Pull == "mean" {
		return graph.MSE(tl, tp)
	}
	return tl.Sub(tp).Square().Sum(-1).Mean()
}

func (m FedPHA) push(tl, tg graph.Node) graph.Node {
	return tl.Sub(tg).Norm(-1).Neg().AddScalar(m.Alpha).ReLU().Mean()
}

// project returns local Q for the projector Q [w,w] of the shared prompt, eq. 8-10.
func (m FedPHA) project(scope *method.Scope, local, global graph.Node) graph.Node {
	return projection.OfPrompt{Projector: m.Projector, Ratio: m.Ratio, Gradient: m.ProjectorGrad, Every: m.SVDEvery}.
		Apply(scope, "projector", local, global)
}
