package ops

import "promptfed/runtime/graph"

// Standard rewrites ONNX Runtime's own operators that builders of layers and gradients use as operators of ONNX, so
// that other runtimes can read a file; ONNX Runtime fuses them again while it loads the file. An operator without a
// standard form stays.
func Standard(roots []node) []node {
	return graph.Transform(roots, func(op *graph.Op, in []node) []node {
		if op.Domain != graph.Microsoft {
			return nil
		}
		switch op.Kind {
		case "QuickGelu": // x σ(alpha x)
			alpha := op.Attrs.Float("alpha", 1.702)
			return []node{in[0].Mul(in[0].MulScalar(alpha).Sigmoid())}
		case "FusedMatMul": // alpha A B, with either transposed over its last two axes
			a, b := in[0], in[1]
			if a.Rank() < 2 || b.Rank() < 2 || op.Attrs.Int("transBatchA", 0)+op.Attrs.Int("transBatchB", 0) > 0 {
				return nil
			}
			if op.Attrs.Int("transA", 0) > 0 {
				a = a.T()
			}
			if op.Attrs.Int("transB", 0) > 0 {
				b = b.T()
			}
			return []node{a.MatMul(b).MulScalar(op.Attrs.Float("alpha", 1))}
		}
		return nil
	})
}
