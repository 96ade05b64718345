package calibration

import (
	"fmt"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// GGTPC asks every client for the number, mean and covariance of its image features of each class (its statistic
// "ggtpc"), rebuilds each class's global covariance on the server, and trains any base method on features that are
// spread along its main axes and sampled by inverse frequency.
//
// Luo et al., Geometric Prior-Guided Federated Prompt Calibration, arXiv 2512.07208, eq. 3-7. There is no public code.
// The server sorts clients by their number of examples of a class, the largest first and the lower client number first
// among equals. It takes the fewest clients that have 80 % of all (share), and combines their moments by the law of
// total covariance (eq. 5); only clients of one backbone are combined. It sends the eigenvectors "axes" [C,K,D] and
// eigenvalues "sizes" [C,K], the largest first, negative ones as 0, to all, or to each client where backbones differ. A
// client keeps them; with full participation they are sent once. Every feature x that is trained on becomes x + Σ_m
// eps_m √λ_m u_m (eq. 6).
//
// Where the paper is silent or the text admits two readings:
//   - features are unit rows, in statistics and in training; other ones are not kept. renormalise: true makes the
//     spread feature a unit row again, as CLIP's scores do; false leaves it as eq. 6 has it. A trace's image is the
//     spread one, draw/clean [B,D] what it was and draw/eps [B,K] the numbers drawn;
//   - stats: packed sends "cov" [C,D(D+1)/2], upper triangles row by row; lowrank sends "factors", for each class in
//     turn the min(rank, n-1, D) rows √λ u of its own largest axes, whose outer products add up to the covariance:
//     nothing is lost while rank >= n-1. A covariance is biased, 1/n, as eq. 3;
//   - axes sends only so many of a class's axes: all 512 of ViT-B/16 would be 105 MB for CIFAR-100;
//   - min_count withholds a class of fewer examples altogether: n, mean and covariance are zeros. The mean of one image
//     is the image, and mean and covariance of two are those two; 3 is the least count that linear algebra alone does
//     not undo. Three or four unit rows are still among finitely many candidates; from 5 on there is a continuum. Rows
//     of a class that nobody answers about are not spread;
//   - sampling: sample gives every row its class's weight w_c, so that classes are drawn equally often, which is what
//     the paper says the strategy is for and what prototypes as "single samples" with a weight need; class is eq. 7 as
//     written, a class with P_c = w_c / Σ w, then one of its rows, which turns an imbalance round; none keeps the
//     base method's order. An epoch is as many rows as there are real ones;
//   - prototypes (section 3.4) are the means of other domains' classes, weighted by examples, and a client without a
//     domain is one of its own. Each is one more row, of weight n_max (as w_c of a class with one sample), and spread
//     likewise;
//   - estimate: once estimates the statistics before round 0, since encoders are frozen; round in every round, as
//     section 3.5 does;
//   - base methods that read patch features get each of them moved by their image's noise, keeping its length; a
//     prototype's patches are all the prototype. Where the image tower runs in the step, with prompts, its features get
//     the noise (draw/noise [B,D] in a trace); there are no prototypes then, and layers around this one see the tower's
//     own features.
type GGTPC struct {
	method.Method
	method.MeanInside // the statistic is no part of the mean

	Stats       string  `config:"stats" in:"packed|lowrank" help:"form in which covariances are sent"`
	Rank        int     `config:"rank" in:"1..hidden" help:"with stats: lowrank, most factors per class"`
	MinCount    int     `config:"min_count" in:"1..steps" help:"a client reports only classes with as many examples"`
	Share       float64 `config:"share" in:"0..1" help:"least share of a class's examples of selected clients"`
	Axes        int     `config:"axes" in:"1..hidden" help:"most axes per class that the server sends"`
	Estimate    string  `config:"estimate" in:"once|round" help:"statistics are estimated"`
	Strength    float64 `config:"strength" in:"0.." help:"factor of the added noise; 1 is eq. 6, 0 for none"`
	Renormalise bool    `config:"renormalise" help:"scale features to norm 1 again after noise was added"`
	Sampling    string  `config:"sampling" in:"class|sample|none" help:"how rows are drawn"`
	Prototypes  bool    `config:"prototypes" help:"add other domains' class means to a client's data"`
}

var ggtpcDef = layer.Def{Name: "ggtpc", Title: "GGTPC",
	Paper: "Luo et al., Geometric Prior-Guided Federated Prompt Calibration, arXiv 2512.07208",
	Suits: layer.RequireLearned("changes the training examples"),
	Default: GGTPC{Stats: "packed", Rank: 128, MinCount: 3, Share: 0.8, Axes: 128, Estimate: "once", Strength: 1,
		Renormalise: true, Sampling: "sample"}}

// Names of what the server sends and a client keeps.
const (
	ggtpcAxes   = "axes"             // [C,K,D], rows of unit length, and zeros behind a class's last
	ggtpcSizes  = "sizes"            // [C,K]
	ggtpcPlaces = "prototypes/mean"  // [P,D]
	ggtpcLabels = "prototypes/label" // [P]
)

// noiseInput [B,D] is what a batch adds to image features that are computed in the step.
var noiseInput = method.Input{Kind: method.DrawInput, Name: "noise"}

// needs lists the tensors that a client needs from the server.
func (m GGTPC) needs() []string {
	var out []string
	if m.Strength > 0 {
		out = append(out, ggtpcAxes, ggtpcSizes)
	}

	if m.Prototypes {
		out = append(out, ggtpcPlaces, ggtpcLabels)
	}

	return out
}

// Loss adds noise to image features of a base method that computes them in the step.
func (m GGTPC) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	noisy := scope.With(method.Override{Vision: func(scope *method.Scope, p method.VisionPrompts) graph.Node {
		x := scope.Vision(p).Add(scope.Input(noiseInput, graph.Float, graph.Rows("B", scope.Task().Dim)))
		if m.Renormalise {
			x = x.L2Normalize()
		}
		return x
	}})

	if m.Strength > 0 {
		if spread := m.Method.Logits(noisy); noisy.Used() {
			scope, logits = noisy, spread
		}
	}

	return m.Method.Loss(scope, logits)
}

// Statistics asks clients for their class moments (eq. 3) before round 0, or with estimate: round before every round,
// then for the statistics of the layers inside. It asks for none where neither noise nor prototypes need them.
func (m GGTPC) Statistics(round int) []method.Statistic {
	rest := m.Method.Statistics(round)
	if len(m.needs()) == 0 || m.Estimate == "once" && round > 0 {
		return rest
	}
	own := method.Statistic{Name: "ggtpc", Compute: m.compute, Answer: m.answer, Aggregate: m.aggregate}
	return append([]method.Statistic{own}, rest...)
}

func (m GGTPC) compute(local *method.Local) (tensor.Map, error) {
	b, err := local.Data.Batch(tensor.Indices(local.Data.Len()), local.Rand)
	if err != nil {
		return nil, err
	}
	return m.measure(b[method.ImageInput], b[method.LabelInput].Ints, local.Task.Classes)
}

// Begin wraps the client's data after the Begin of the base method.
func (m GGTPC) Begin(local *method.Local) error {
	if err := m.Method.Begin(local); err != nil || local.Pretrains {
		return err
	}

	prior := tensor.Map{}
	for _, name := range m.needs() {
		value := local.Broadcast[name]
		switch {
		case value != nil && m.Estimate == "once":
			local.State[name] = value
		case value == nil:
			value = local.State[name]
		}
		if value == nil {
			return fmt.Errorf("ggtpc: the server sent no %s: this client joined after the statistics round and takes "+
				"part after the next one", name)
		}
		prior[name] = value
	}

	if len(m.needs()) > 0 || m.Sampling != "none" {
		local.Data = m.calibrate(local.Data, prior)
	}

	return nil
}

// Merge removes tensors from messages that all clients, or one client, have kept.
func (m GGTPC) Merge(global *method.Global, ups []method.Upload) error {
	if err := m.Method.Merge(global, ups); err != nil || m.Estimate == "round" {
		return err
	}

	for _, name := range m.needs() {
		for _, u := range ups {
			delete(global.PerClient[u.Client], name)
		}
		if len(ups) == global.Clients {
			delete(global.Broadcast, name)
		}
	}

	return nil
}
