package message

import (
	"math"

	"promptfed/runtime/tensor"
)

// Move is the Euclidean norm of what an upload changed of the shared parameters that were sent.
func Move(sent, uploaded tensor.Map) float64 {
	return uploaded.Clone().Axpy(-1, sent).Norm()
}

// MaxMoves is how many times as far as usual an upload may move the shared parameters.
const MaxMoves = 50

// MostMove is the longest move that is taken whatever others upload: MaxMoves times the norm of the parameters, or that
// of ones in their place where it is larger, since low-rank changes and adapters start at 0. Without it two clients
// could not be told apart, and two of three would say what is usual.
func MostMove(shared tensor.Map) float64 {
	count := 0
	for _, t := range shared {
		count += t.Len()
	}
	return MaxMoves * math.Max(shared.Norm(), math.Sqrt(float64(count)))
}
