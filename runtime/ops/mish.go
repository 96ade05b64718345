package ops

import "promptfed/runtime/graph"

func init() {
	graph.Register(def{Kind: "Mish", MinInputs: 1, Infer: sameShape, Decompose: decomposeMish})
}

// decomposeMish returns x tanh(softplus(x)) [Misra 2019].
func decomposeMish(_ *call, in []node) node { return in[0].Mul(in[0].Softplus().Tanh()) }
