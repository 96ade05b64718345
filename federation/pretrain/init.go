package pretrain

import (
	"maps"
	"math"
	"strings"

	"promptfed/models/clip"
	"promptfed/runtime/tensor"
)

// maxScale limits the logit scale, as in CLIP (Radford et al. 2021, section 2.5).
const maxScale = 100

// fresh draws the weights of both towers as CLIP's published code does: normal with the standard deviations below,
// biases 0, gains 1, and the logit scale 1/0.07. Every tensor has its own random stream, a function of the seed and its
// name, so two backbones with one seed and one text architecture start with the same text tower.
func fresh(text clip.TextArch, image clip.VisionArch, vocabulary int, seed uint64) tensor.Map {
	shapes := text.Shapes()
	maps.Copy(shapes, image.TrainedShapes())
	shapes[tokenTable] = []int{vocabulary, text.Width}
	w := tensor.Map{logScale: tensor.Scalar(float32(math.Log(1 / 0.07)))}
	for name, shape := range shapes {
		t := tensor.New(shape...)
		width, layers := text.Width, text.Layers
		if strings.HasPrefix(name, "visual.") {
			width, layers = image.Width, image.Layers
		}
		std := deviation(name, width, layers, image.Patch)
		if image.ResNet() && strings.HasPrefix(name, "visual.") {
			std = resnetDeviation(shape)
		}
		switch {
		case std > 0:
			rng := stream(seed, "weights/"+name)
			for i := range t.Data {
				t.Data[i] = float32(std * rng.NormFloat64())
			}
		// zero, so that every block starts as the identity
		case strings.HasSuffix(name, "bn3.weight") && strings.Contains(name, ".layer"):
		case strings.HasSuffix(name, ".weight"): // of a normalisation
			for i := range t.Data {
				t.Data[i] = 1
			}
		}
		w[name] = t
	}
	return w
}

// deviation returns the standard deviation of a fresh tensor; 0 for gains and biases.
func deviation(name string, width, layers, patch int) float64 {
	attention := 1 / math.Sqrt(float64(width))
	residual := attention / math.Sqrt(2*float64(layers))
	switch {
	case name == tokenTable:
		return 0.02
	case name == "positional_embedding":
		return 0.01
	case strings.HasSuffix(name, "attn.in_proj_weight"), strings.HasPrefix(name, "visual.") && !strings.Contains(name,
		"resblocks") &&
		(strings.HasSuffix(name, "_embedding") || strings.HasSuffix(name, ".proj")), name == "text_projection":
		return attention
	case strings.HasSuffix(name, "attn.out_proj.weight"), strings.HasSuffix(name, "mlp.c_proj.weight"):
		return residual
	case strings.HasSuffix(name, "mlp.c_fc.weight"):
		return 1 / math.Sqrt(2*float64(width))
	case name == "visual.conv1.weight":
		return 1 / math.Sqrt(3*float64(3*patch*patch)) // torch's default: uniform on ±1/√fan_in
	}
	return 0
}
