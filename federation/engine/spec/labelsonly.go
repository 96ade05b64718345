package spec

import (
	"errors"
	"math/rand/v2"

	"promptfed/runtime/tensor"
)

// LabelsOnly is the data of a client whose examples are on another machine, of which only the classes are known.
type LabelsOnly []int64

func (o LabelsOnly) Len() int { return 0 }

func (o LabelsOnly) Labels() []int64 { return o }

func (o LabelsOnly) Order(*rand.Rand) []int { return nil }

// Batch returns an error: there are no examples.
func (o LabelsOnly) Batch([]int, *rand.Rand, ...string) (tensor.Map, error) {
	return nil, errors.New("the examples of this client are not on this machine")
}
