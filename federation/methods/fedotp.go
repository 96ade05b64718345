package methods

import (
	"math"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// FedOTP scores an image by transport between its patches and two prompts of each class, "global", shared, and "local",
// private, both [tokens,w]. With the similarities S [M,2] of M patches to the two, the score is exp(logit_scale) <T,S>,
// where the plan T solves entropic transport for the cost 1-S: every patch sends at most 1/M (transport: unbalanced,
// eq.
// 9) or exactly that (balanced), and each prompt receives top_percent/2. T is a constant for gradients.
//
// Li et al., Global and Local Prompts Cooperation via Optimal Transport for Federated Learning, CVPR 2024, eq. 5-12,
// algorithm 1; the plan is found as in the public code, by fast Dykstra iterations with K = e^-(1-S)/eps from v = 1:
//
//	u = min(1/(M K v), 1), v = top_percent/2 / (Kᵀ u), T = diag(u) K diag(v)
//
// Notes:
//   - the paper does not say when the iterations end. Ours end for each image by itself, when v moved by less than
//     threshold in the mean over its classes and both prompts (stop: image), or for each image and class (stop: pair):
//     a score is then the same whatever images it is computed with. The code takes the mean over all images of a batch
//     (stop: batch), with which scores depend on the grouping of the images, by up to 1e-3; with the balanced transport
//     its rule is another one, the mean move of u over images, classes and patches (stop: code, which is batch where
//     unbalanced);
//   - below eps 0.05, K, u and v are held as logarithms, which gives no NaN, as the code may in half precision;
//   - the code caps top_percent at 1; FedPHA's comparison runs FedOTP with 1, where the transport is balanced anyhow;
//   - balanced is the code's Sinkhorn option: the iterations without the minimum and with all mass;
//   - in its first round the code trains every client, so that each has a local prompt; here a client that never
//     trained is tested with the one it drew.
type FedOTP struct {
	method.Base
	Context   `config:",squash"`
	Transport string  `config:"transport" help:"unbalanced or balanced"`
	Top       float64 `config:"top_percent" help:"gamma, the mass that is transported in all; balanced takes 1"`
	Eps       float64 `config:"eps" help:"strength of the entropy (the paper's lambda)"`
	Iters     int     `config:"iters" help:"iterations at most"`
	Threshold float64 `config:"threshold" help:"mean change that ends the iterations"`
	Stop      string  `config:"stop" help:"what that mean is over: image, pair or batch, or as in the public code (code)"`
}

var fedOTPDef = Def{Name: "fedotp", Title: "FedOTP", New: newFedOTP,
	Paper:   "Li et al., Global and Local Prompts Cooperation via Optimal Transport, CVPR 2024",
	Traffic: promptTraffic}

func newFedOTP() Layer {
	return &FedOTP{Context: defaultContext, Transport: "unbalanced", Top: 0.8, Eps: 0.1, Iters: 100, Threshold: 1e-3,
		Stop: "image"}
}

func (m *FedOTP) Build(method.Method) (method.Method, error) {
	return *m, Join(m.Check(), OneOf("transport", m.Transport, "unbalanced", "balanced"), Within("top_percent", m.Top,
		1e-3, 1),
		Within("eps", m.Eps, 1e-4, maxWeight), Within("iters", m.Iters, 1, maxSteps), Within("threshold", m.Threshold,
			0, maxWeight),
		OneOf("stop", m.Stop, "image", "pair", "batch", "code"))
}

func (FedOTP) Traits() method.Traits { return method.Traits{Mean: method.ByExamples} }

func (m FedOTP) Params(t method.Task) []method.Param {
	return append(m.Declare(t, "global", method.Shared), m.Declare(t, "local", method.Private)...)
}

func (m FedOTP) Logits(s *method.Scope) graph.Node {
	t := s.Task()
	if t.Patches == 0 {
		return s.Graph().Fail("fedotp compares patches, of which backbone %s gives no features", t.Backbone)
	}
	text := graph.Concat(0, m.Features(s, s.Param("global")), m.Features(s, s.Param("local"))) // [2C,D]
	sim := s.Patches().Reshape(-1, t.Dim).MatMulT(text)                                        // [BM,2C]
	sim = sim.Reshape(-1, t.Patches, 2, t.Classes).Transpose(2, 0, 3, 1)                       // [2,B,C,M]
	return m.plan(sim.Detach()).Mul(sim).Sum(0, -1).Scale(t.Scale)
}

// inLogs tells whether K, u and v are held as logarithms: where K = e^-(1-S)/eps may leave the range of float32.
func (m FedOTP) inLogs() bool { return m.Eps < 0.05 }

// plan gives T [2,B,C,M] of similarities [2,B,C,M].
func (m FedOTP) plan(sim graph.Node) graph.Node {
	kernel, one := sim.Shift(-1).Scale(1/m.Eps), 0.0
	if !m.inLogs() {
		kernel, one = kernel.Exp(), 1
	}
	// [1,B,C,M], [2,B,C,1]
	u, v := kernel.Slice(0, 0, 1).Scale(0).Shift(one), kernel.Slice(-1, 0, 1).Scale(0).Shift(one)
	// [1,B,C,1], 1 for pairs that go on
	on := kernel.Slice(0, 0, 1).Slice(-1, 0, 1).Scale(0).Shift(1)
	out := graph.While(m.Iters, func(st []graph.Node) ([]graph.Node, graph.Node) {
		kernel, u, v, on := st[0], st[1], st[2], st[3]
		nextU, nextV, change := m.iterate(kernel, u, v)
		limit := change.ScalarLike(m.Threshold)
		if m.Stop == "batch" || m.Stop == "code" {
			return []graph.Node{kernel, nextU, nextV, on}, change.Mean().Greater(limit)
		}
		over := []int{0} // prompts
		if m.Stop == "image" {
			over = []int{0, 2} // and classes
		}
		active := on.Greater(on.ScalarLike(0.5))
		goes := change.MeanKeep(over...).Greater(limit).Cast(graph.Float).Mul(on)
		return []graph.Node{kernel, active.Where(nextU, u), active.Where(nextV, v), goes},
			goes.Sum().Greater(on.ScalarLike(0.5))
	}, kernel, u, v, on)
	if m.inLogs() {
		return kernel.Add(out[1]).Add(out[2]).Exp().Detach()
	}
	return kernel.Mul(out[1]).Mul(out[2]).Detach()
}

// iterate is one iteration from u and v: the next ones, and by how much the one that ends the iterations moved.
func (m FedOTP) iterate(kernel, u, v graph.Node) (nextU, nextV, change graph.Node) {
	patches, mass := float64(kernel.Dim(-1)), m.Top/2
	if m.Transport == "balanced" {
		mass = 0.5
	}
	if m.inLogs() {
		nextU = logSumExp(kernel.Add(v), 0).Shift(math.Log(patches)).Neg()
		if m.Transport == "unbalanced" {
			nextU = nextU.Min(nextU.ScalarLike(0))
		}
		nextV = logSumExp(kernel.Add(nextU), -1).Neg().Shift(math.Log(mass))
		now, was := m.ends(nextU, u, nextV, v)
		largest := now.Max(was).Min(was.ScalarLike(80)) // e^80 is a float, and far above any threshold
		return nextU, nextV, now.Sub(was).Abs().Neg().Exp().Neg().Shift(1).Mul(largest.Exp())
	}
	nextU = kernel.Mul(v).SumKeep(0).Scale(patches).Reciprocal()
	if m.Transport == "unbalanced" {
		nextU = nextU.Min(nextU.ScalarLike(1))
	}
	nextV = kernel.Mul(nextU).SumKeep(-1).Reciprocal().Scale(mass)
	now, was := m.ends(nextU, u, nextV, v)
	return nextU, nextV, now.Sub(was).Abs()
}

// ends gives the scaling whose move ends the iterations, now and before.
func (m FedOTP) ends(nextU, u, nextV, v graph.Node) (now, was graph.Node) {
	if m.Stop == "code" && m.Transport == "balanced" {
		return nextU, u
	}
	return nextV, v
}

// logSumExp is log Σ e^x over one axis, which it keeps.
func logSumExp(x graph.Node, axis int) graph.Node {
	top := x.Graph().Apply(graph.Standard, "ReduceMax", graph.Attrs{"keepdims": graph.Attr(1)}, x, x.Graph().Ints(axis))
	return x.Sub(top).Exp().SumKeep(axis).Log().Add(top)
}
