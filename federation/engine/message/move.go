package message

import (
	"math"

	"promptfed/runtime/tensor"
)

// UpdateNorm returns the Euclidean norm of the difference between an upload and the shared parameters that were sent.
func UpdateNorm(sent, uploaded tensor.Map) float64 {
	return uploaded.Clone().Axpy(-1, sent).Norm()
}

// MaxNormRatio is the largest ratio of the norm of an upload's update to the usual norm.
const MaxNormRatio = 50

// MaxUpdateNorm returns the largest norm of an update that is accepted whatever others upload: MaxNormRatio times the
// norm of the parameters, or that of ones in their place where it is larger, since low-rank changes and adapters start
// at 0. Without this limit two clients could not be told apart, and two of three would determine the usual norm.
func MaxUpdateNorm(shared tensor.Map) float64 {
	count := 0
	for _, t := range shared {
		count += t.Len()
	}
	return MaxNormRatio * math.Max(shared.Norm(), math.Sqrt(float64(count)))
}
