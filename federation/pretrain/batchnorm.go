package pretrain

import (
	"math"

	"promptfed/models/clip"
	"promptfed/runtime/tensor"
)

// Suffixes of the names of a batch normalisation's running statistics.
const (
	runningMean = ".running_mean"
	runningVar  = ".running_var"
)

// momentum is the weight of the current batch in the running statistics, as in torch.nn.BatchNorm2d.
const momentum = 0.1

// freshMoments returns means 0 and variances 1 for every batch normalisation of an image tower.
func freshMoments(image clip.VisionArch) tensor.Map {
	m := tensor.Map{}
	for _, c := range image.Convolutions() {
		m[c.Norm+runningMean], m[c.Norm+runningVar] = tensor.New(c.Out), tensor.New(c.Out)
		for i := range c.Out {
			m[c.Norm+runningVar].Data[i] = 1
		}
	}
	return m
}

// follow updates the running statistics with those of a batch.
func follow(moments, batch tensor.Map) {
	for name, m := range moments {
		for i, b := range batch[name].Data {
			m.Data[i] += momentum * (b - m.Data[i])
		}
	}
}

// resnetDeviation returns the standard deviation of a fresh tensor of a ResNet: for convolutions that of torch's
// default, uniform on ±1/√fan_in, for the attention pooling 1/√width, as in CLIP's published code; 0 for gains and
// biases.
func resnetDeviation(shape []int) float64 {
	switch {
	case len(shape) == 2:
		return 1 / math.Sqrt(float64(shape[1]))
	case len(shape) == 4:
		return 1 / math.Sqrt(3*float64(tensor.Size(shape[1:])))
	}
	return 0
}
