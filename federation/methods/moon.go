package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// MOON draws what is learned towards the received model and away from what this client last made of it:
// loss - mu log(e^(z·z_g/tau) / (e^(z·z_g/tau) + e^(z·z_p/tau))), z, z_g and z_p being unit representations by the present,
// the received and the client's last parameters, averaged over the batch.
//
// Li et al., Model-Contrastive Federated Learning, CVPR 2021, eq. 3. A frozen encoder's image features are the same for
// all three, so that with CLIP z is something else (our reading, option of):
//   - logits: an image's class scores;
//   - text: the class features that the carrier compares with images, averaged over classes in place of the batch;
//   - prompt: the class features of the shared prompts ctx, global, sigma and text/shared, whatever is tested;
//   - image: image features, for carriers that move them;
//   - auto: logits where they use what the server averages, else prompt, as over FedPHA, which scores by its private
//     prompt alone.
//
// Before a client's first round z_p is z_g, and the term is mu log 2.
type MOON struct {
	method.Method
	Mu  float64 `config:"mu" help:"weight of the contrast; 0 removes it"`
	Tau float64 `config:"tau" help:"temperature of the contrast"`
	Of  string  `config:"of" help:"what is contrasted: auto, logits, text, prompt or image"`
}

func newMOON() layer { return &MOON{Mu: 1, Tau: 0.5, Of: "auto"} }

func (m *MOON) build(inner method.Method) (method.Method, error) {
	m.Method = inner
	err := all(within("mu", m.Mu, 0, maxWeight), within("tau", m.Tau, 1e-6, maxWeight),
		oneOf("of", m.Of, "auto", "logits", "text", "prompt", "image"), mustShare(inner), learnsScores(inner))
	if err != nil {
		return *m, err
	}
	return *m, fits(*m, inner)
}

func (m MOON) Loss(s *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(s, logits)
	if m.Mu == 0 {
		return loss
	}
	received, of := s.Received(), m.Of
	if of == "auto" {
		if of = "logits"; !usesShared(received, m.Method.Logits(received)) {
			of = "prompt"
		}
	}
	z, global, last := represent(m.Method, s, of), represent(m.Method, received, of), represent(m.Method, s.Before(), of)
	if !usesShared(received, global) {
		return s.Graph().Fail("of: %s uses nothing that the server averages, so that the received model and the last one are alike; use another", of)
	}
	near, far := z.Mul(global).Sum(-1), z.Mul(last).Sum(-1)
	return loss.Add(s.Term("model-contrastive", far.Sub(near).Scale(1/m.Tau).Softplus().Mean().Scale(m.Mu)))
}
