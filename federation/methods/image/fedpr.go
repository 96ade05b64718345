package image

import (
	"math"
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/federation/methods/parts/projection"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/tensor"
)

// FedPR is FedVPT with deep prompts whose updates stay in the approximate null space of the averaged prompt: block by
// block each row of the gradient is multiplied by
//
//	B Bᵀ / ‖B Bᵀ‖_F, B = V[:, r:], r = int(v(1-ratio))
//
// with V [v,v] the right singular vectors, by falling singular value, of the block's prompt [P,v] as the server sent
// it. With ratio 0.8 these are the weakest 80 % of the directions, and the norm, √(v-r), makes every step as much
// smaller.
//
// Feng et al., Learning Federated Visual Prompt in Null Space for MRI Reconstruction, CVPR 2023; the transform is the
// one of its public code. Notes:
//   - the code projects the update that Adam made of the gradient; here the gradient is projected, after all wrappers'
//     terms and before the optimizer. With plain gradient descent, with or without momentum, that is the same update;
//     with an adaptive optimizer, or weight decay, it is not;
//   - the code reconstructs images with a Swin transformer; here the task is classification against the hand-written
//     prompts;
//   - a prompt of P < v rows does not determine the directions behind its P-th, of which the code (projector: code)
//     cuts v(1-ratio)-P as LAPACK happens to complete the basis, close to the coordinate axes whatever the prompt is;
//     that basis is the one of package projection. Ours, exact-null, cuts no direction that the prompt
//     does not have: r = min(rank, int(v(1-ratio))). A trace records the transforms under draw/projector, [L,v,v], or
//     [v,v] where prompts are shallow;
//   - the code's rate of 0.1 and its 10 local epochs are the experiment's.
type FedPR struct {
	method.FedAvg
	prompts.Visual `config:",squash"`

	Ratio     float64 `config:"ratio" in:"0<..1" help:"share of the weakest directions, in which the prompt may move"`
	Projector string  `config:"projector" in:"exact-null|code" help:"fixed directions"`
}

var fedPRDef = layer.Def{Name: "fedpr", Title: "FedPR",
	Paper: "Feng et al., Learning Federated Visual Prompt in Null Space for MRI Reconstruction, CVPR 2023",
	Default: FedPR{Visual: prompts.Visual{Kind: "deep", Tokens: 20, Std: 0.02}, Ratio: 0.8,
		Projector: projection.ExactNull}}

// Check refuses prompts of pixels: the null space is that of a prompt's tokens.
func (m FedPR) Check() error { return m.OnlyTokens() }

// Params declares "prompt", shared: [L,P,v], or [P,v] where prompts are shallow.
func (m FedPR) Params(t method.ClientSpec) []method.Param {
	return m.Declare(t, "prompt", method.Shared)
}

// AdjustGradients projects the gradient.
func (m FedPR) AdjustGradients(local *method.Local, grads tensor.Map) error {
	blocks, err := m.transforms(local)
	if err != nil {
		return err
	}

	grad := grads["prompt"]
	if local.Draws != nil {
		width := grad.Shape[len(grad.Shape)-1]
		all := &tensor.Tensor{Shape: append(slices.Clone(grad.Shape[:len(grad.Shape)-2]), width, width)}
		for _, b := range blocks {
			all.Data = append(all.Data, linalg.Scale(b.q.Dense(), 1/b.norm).Data...)
		}
		local.Draws.Record("projector", all)
	}

	part := len(grad.Data) / len(blocks)
	for i, b := range blocks {
		rows := tensor.Of(grad.Data[i*part:(i+1)*part], m.Tokens, grad.Shape[len(grad.Shape)-1])
		moved, err := b.q.Apply(rows)
		if err != nil {
			return err
		}
		copy(rows.Data, linalg.Scale(moved, 1/b.norm).Data)
	}

	return nil
}

// transform is B Bᵀ and its Frobenius norm.
type transform struct {
	q    *projection.Projection
	norm float64
}

// transforms returns the transform of every block, decomposed once a round.
func (m FedPR) transforms(local *method.Local) ([]transform, error) {
	const name = "fedpr/transforms"
	if known, ok := local.Cache[name].([]transform); ok {
		return known, nil
	}

	p := local.Received["prompt"]
	width := p.Shape[len(p.Shape)-1]
	first := int(float64(width) * (1 - m.Ratio)) // the rounding is Python's, as in the code
	out := make([]transform, p.Len()/(m.Tokens*width))

	for i := range out {
		rows := tensor.Of(p.Data[i*m.Tokens*width:(i+1)*m.Tokens*width], m.Tokens, width)
		q, err := projection.ProjectColumns(rows, func(rank int) (int, int) {
			if m.Projector == projection.Code {
				return first, width
			}
			return min(rank, first), width
		})
		if err != nil {
			return nil, err
		}
		out[i] = transform{q, math.Sqrt(float64(q.Kept()))}
	}

	local.Cache[name] = out
	return out, nil
}
