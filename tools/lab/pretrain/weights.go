package pretrain

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"

	"promptfed/models/clip"
	"promptfed/runtime/safetensors"
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
	weights := tensor.Map{logScale: tensor.Scalar(float32(math.Log(1 / 0.07)))}
	for name, shape := range shapes {
		values := tensor.New(shape...)
		width, layers := text.Width, text.Layers
		if strings.HasPrefix(name, "visual.") {
			width, layers = image.Width, image.Layers
		}

		switch std := deviation(name, shape, width, layers); {
		case std > 0:
			rng := stream(seed, "weights/"+name)
			for i := range values.Data {
				values.Data[i] = float32(std * rng.NormFloat64())
			}
		// zero, so that every block starts as the identity
		case strings.HasSuffix(name, "bn3.weight") && strings.Contains(name, ".layer"):
		case strings.HasSuffix(name, ".weight"): // of a normalisation
			for i := range values.Data {
				values.Data[i] = 1
			}
		}

		weights[name] = values
	}

	return weights
}

// deviation returns the standard deviation of a fresh tensor; 0 for gains and biases. That of convolutions is torch's
// default, uniform on ±1/√fan_in; that of a ResNet's attention pooling is 1/√width, as in CLIP's published code.
func deviation(name string, shape []int, width, layers int) float64 {
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
	case len(shape) == 4:
		return 1 / math.Sqrt(3*float64(tensor.Size(shape[1:])))
	case strings.HasPrefix(name, "visual.attnpool.") && len(shape) == 2:
		return attention
	}

	return 0
}

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

// meanOfUnreached sets the text positions beyond the length of captions, which have kept their initial random values,
// to the mean of the last four positions that captions commonly reach. Prompts of sixteen and more tokens push class
// names there. Captions rarely fill the last quarter of their maximal length, so it counts as unreached too.
func meanOfUnreached(weights tensor.Map, longest int) {
	param := weights["positional_embedding"]
	width := param.Shape[1]
	reach := longest - longest/4
	from := max(0, reach-4)
	mean := make([]float32, width)
	for i := range width {
		sum := 0.0
		for r := from; r < reach; r++ {
			sum += float64(param.Data[r*width+i])
		}
		mean[i] = float32(sum / float64(reach-from))
	}

	for r := reach; r < param.Shape[0]; r++ {
		copy(param.Data[r*width:], mean)
	}
}

// Values of Config.Take; empty means takeText.
const (
	takeText = "text"
	takeAll  = "all"
)

// start copies tensors of a trained backbone: all tensors, or the text tower without its projection. If two backbones
// share a text tower at the start, prompts have similar meanings for both, which makes averages of their prompts
// meaningful, and the second one's image tower learns from meaningful text features at once.
func start(folder, take string, weights, moments tensor.Map) error {
	path := filepath.Join(folder, weightsFile)
	trained, _, err := safetensors.ReadFile(path)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}

	all := maps.Clone(weights)
	maps.Copy(all, moments)
	for _, name := range all.Names() {
		w := all[name]
		if take != takeAll && (strings.HasPrefix(name, "visual.") || name == "text_projection" || name == logScale) {
			continue
		}
		t := trained[name]
		if t == nil || !t.SameShape(w) {
			return fmt.Errorf("start: %s: tensor %s is %v, want %v: use a backbone with the same architecture and "+
				"vocabulary", path, name, t, w)
		}
		copy(w.Data, t.Data)
	}

	return nil
}
