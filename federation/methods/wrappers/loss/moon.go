package loss

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
)

// MOON pulls the learned model towards the received model and away from the client's last model:
// loss - mu log(e^(z·z_g/tau) / (e^(z·z_g/tau) + e^(z·z_p/tau))), z, z_g and z_p being unit representations by the
// present, the received and the client's last parameters, averaged over the batch.
//
// Li et al., Model-Contrastive Federated Learning, CVPR 2021, eq. 3. A frozen encoder's image features are the same for
// all three, so that with CLIP z is something else (our reading):
//   - an image's class scores, where they use what the server averages;
//   - else the class features of the shared prompts ctx, global, sigma and text/shared, as over FedPHA, which scores by
//     its private prompt alone.
//
// CLIP's cosines of an image with the class texts lie close together and so do the class features, so that their
// representations by two models have a cosine of nearly 1 whatever was learned, and the term no gradient to speak of.
// Ours takes off what classes have in common first (centre: true): class scores less their mean over classes, as the
// softmax does not see it, and class features less theirs. The scores of two classes, which one number makes, are not
// centred.
type MOON struct {
	method.Method
	method.MeanInside // the term compares models that the client has

	Mu  float64 `config:"mu" in:"0.." help:"weight of the contrastive term; 0 removes it"`
	Tau float64 `config:"tau" in:"1e-6.." help:"temperature of the contrastive term"`

	Centre bool `config:"centre" help:"subtract the mean over classes from class scores and class features"`
}

var moonDef = layer.Def{Name: "moon", Title: "MOON",
	Paper:   "Li et al., Model-Contrastive Federated Learning, CVPR 2021",
	Suits:   layer.RequireShared,
	Default: MOON{Mu: 1, Tau: 0.5, Centre: true}}

// Loss adds the contrastive term to the loss inside (eq. 3); z_g and z_p are constants. Before a client's first round
// z_p is z_g, and the term is mu log 2.
func (m MOON) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	if m.Mu == 0 {
		return loss
	}

	received, represented := scope.Received(), "logits"
	if !usesShared(received, m.Method.Logits(received)) {
		represented = "prompt"
	}

	z, global, last := m.represent(scope, represented), m.represent(received,
		represented), m.represent(scope.LastTrained(), represented)
	near, far := z.Mul(global).Sum(-1), z.Mul(last).Sum(-1)
	return loss.Add(scope.Term("model-contrastive", far.Sub(near).MulScalar(1/m.Tau).Softplus().Mean().MulScalar(m.Mu)))
}

// represent returns the unit rows z of a scope.
func (m MOON) represent(scope *method.Scope, what string) graph.Node {
	z := represent(m.Method, scope, what)
	classes := scope.Task().Classes
	switch {
	case !m.Centre || scope.Graph().Err() != nil:
		return z
	case what == "logits":
		if classes > 2 {
			z = z.Sub(z.MeanKeep(-1)).L2Normalize()
		}
		return z
	}

	sets := z.Reshape(-1, classes, scope.Task().Dim) // of each prompt
	return sets.Sub(sets.MeanKeep(1)).L2Normalize().Reshape(-1, scope.Task().Dim)
}
