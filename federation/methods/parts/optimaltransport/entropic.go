package optimaltransport

import (
	"math"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// Entropic is entropic optimal transport between an image's patches and several prompts of each class, for the cost
// 1-S of similarities S, found by the iterations that FedOTP's comment states.
type Entropic struct {
	Mass      float64 `json:"mass"`    // that each prompt receives; patches send 1 in all
	Bounded   bool    `json:"bounded"` // a patch sends at most 1/M; otherwise exactly that
	Eps       float64 `json:"eps"`
	Iters     int     `json:"iters"`
	Threshold float64 `json:"threshold"`
	Stop      string  `json:"stop"` // image, pair or code, as in FedOTP
	OnRows    bool    `json:"-"`    // the move of u ends the iterations, not that of v; no option of a method file
}

// inLogs reports whether K, u and v are held as logarithms: where K = e^-(1-S)/eps may leave the range of float32.
func (m Entropic) inLogs() bool { return m.Eps < 0.05 }

// Scores returns class scores [B,C] by the transport between patches and the class features [C,D] of each prompt. A
// backbone without patch features fails the graph; name is the method's, for the error.
func (m Entropic) Scores(scope *method.Scope, name string, texts ...graph.Node) graph.Node {
	client := scope.Task()
	if client.Patches == 0 {
		return scope.Graph().Fail("%s compares patch features, which backbone %s does not provide", name,
			client.Backbone)
	}

	sim := scope.Patches().Reshape(-1, client.Dim).MatMulT(graph.Concat(0, texts...))       // [BM,NC]
	sim = sim.Reshape(-1, client.Patches, len(texts), client.Classes).Transpose(2, 0, 3, 1) // [N,B,C,M]
	return m.Plan(sim.Detach()).Mul(sim).Sum(0, -1).MulScalar(client.Scale)
}

// Plan returns T [N,B,C,M] for similarities [N,B,C,M] of N prompts and M patches, a constant for gradients.
func (m Entropic) Plan(sim graph.Node) graph.Node {
	kernel, one := sim.AddScalar(-1).MulScalar(1/m.Eps), 0.0
	if !m.inLogs() {
		kernel, one = kernel.Exp(), 1
	}

	// [1,B,C,M], [N,B,C,1]
	u, v := kernel.Slice(0, 0, 1).MulScalar(0).AddScalar(one), kernel.Slice(-1, 0, 1).MulScalar(0).AddScalar(one)
	on := kernel.Slice(0, 0, 1).Slice(-1, 0, 1).MulScalar(0).AddScalar(1) // [1,B,C,1]
	over := map[string][]int{"pair": {0}, "image": {0, 2}}[m.Stop]        // prompts, and classes; all for code
	if m.OnRows && over != nil {
		over = append(over, 3) // and patches
	}

	out := graph.While(m.Iters, on, func(st []graph.Node) ([]graph.Node, graph.Node) {
		nextU, nextV, change := m.iterate(st[0], st[1], st[2])
		return []graph.Node{st[0], nextU, nextV}, change.MeanKeep(over...).Greater(change.ScalarLike(m.Threshold))
	}, kernel, u, v)

	if m.inLogs() {
		return kernel.Add(out[1]).Add(out[2]).Exp().Detach()
	}

	return kernel.Mul(out[1]).Mul(out[2]).Detach()
}

// iterate returns the next u and v, and the change of the one that ends the iterations.
func (m Entropic) iterate(kernel, u, v graph.Node) (nextU, nextV, change graph.Node) {
	patches, mass := float64(kernel.Dim(-1)), m.Mass
	if m.inLogs() {
		nextU = nn.LogSumExp(kernel.Add(v), 0).AddScalar(math.Log(patches)).Neg()
		if m.Bounded {
			nextU = nextU.Min(nextU.ScalarLike(0))
		}
		nextV = nn.LogSumExp(kernel.Add(nextU), -1).Neg().AddScalar(math.Log(mass))
		now, was := m.ends(nextU, u, nextV, v)
		largest := now.Max(was).Min(was.ScalarLike(80)) // e^80 is a float, and far above any threshold
		return nextU, nextV, now.Sub(was).Abs().Neg().Exp().Neg().AddScalar(1).Mul(largest.Exp())
	}

	nextU = kernel.Mul(v).SumKeep(0).MulScalar(patches).Reciprocal()
	if m.Bounded {
		nextU = nextU.Min(nextU.ScalarLike(1))
	}

	nextV = kernel.Mul(nextU).SumKeep(-1).Reciprocal().MulScalar(mass)
	now, was := m.ends(nextU, u, nextV, v)
	return nextU, nextV, now.Sub(was).Abs()
}

// ends returns the scaling whose change ends the iterations, now and before.
func (m Entropic) ends(nextU, u, nextV, v graph.Node) (now, was graph.Node) {
	if m.OnRows {
		return nextU, u
	}
	return nextV, v
}
