package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/runtime/tensor"
)

// normEpsilon is the epsilon of batch normalisations: PyTorch's default, which no CLIP changes.
const normEpsilon = 1e-5

// stemTensor ends the name of the tensor that identifies a ResNet; the rest of that name is the tower's prefix.
const stemTensor = "layer1.0.conv1.weight"

// convolution is a convolution without bias, weight [out,in,k,k], and the batch normalisation after it, whose other
// tensors are [out].
type convolution struct{ weight, gain, bias, mean, variance *Handle }

// folded returns the convolution and its normalisation with running statistics (Ioffe and Szegedy 2015, algorithm 2) as
// one convolution: weight [out,in,k,k] is the weight times s = gain/sqrt(variance+1e-5) of its channel, and bias [out]
// is bias - mean s. Both are computed in double precision on Load and rounded once.
func (c convolution) folded() (weight, bias *Handle) {
	weight = computed(c.weight, func(t *tensor.Tensor) error {
		s, err := c.scales()
		if err == nil {
			scaleRows(t, s)
		}
		return err
	})

	bias = computed(c.bias, func(t *tensor.Tensor) error {
		s, err := c.scales()
		if err != nil {
			return err
		}
		mean, err := finite(c.mean)
		if err != nil {
			return err
		}
		for i, v := range t.Data {
			t.Data[i] = float32(float64(v) - float64(mean.Data[i])*s[i])
		}
		return nil
	})

	return weight, bias
}

// computed returns a tensor that change computes from h on Load; no file holds it.
func computed(h *Handle, change func(*tensor.Tensor) error) *Handle {
	return &Handle{Name: h.Name, DType: "F32", Shape: slices.Clone(h.Shape), Computed: true,
		load: func() (*tensor.Tensor, error) {
			t, err := finite(h)
			if err == nil {
				err = change(t)
			}
			return t, err
		}}
}

// scaleRows multiplies each row, along the first axis, by its number.
func scaleRows[F float32 | float64](t *tensor.Tensor, by []F) {
	n := len(t.Data) / len(by)
	for i, v := range t.Data {
		t.Data[i] = float32(float64(v) * float64(by[i/n]))
	}
}

// scales returns the factors of the convolution's channels.
func (c convolution) scales() ([]float64, error) {
	gain, err := finite(c.gain)
	if err != nil {
		return nil, err
	}

	variance, err := finite(c.variance)
	if err != nil {
		return nil, err
	}

	s := make([]float64, len(gain.Data))
	for i, v := range variance.Data {
		if v < 0 {
			return nil, fmt.Errorf("tensor %q holds %g at %d, but a variance is not negative: the checkpoint is "+
				"damaged", c.variance.Name, v, i)
		}
		s[i] = float64(gain.Data[i]) / math.Sqrt(float64(v)+normEpsilon)
	}

	return s, nil
}

func finite(h *Handle) (*tensor.Tensor, error) {
	t, err := h.Load()
	if err != nil {
		return nil, err
	}

	if i := t.NonFinite(); i >= 0 {
		return nil, fmt.Errorf("tensor %q holds %v: the checkpoint is damaged", h.Name, t.Data[i])
	}

	return t, nil
}

// resnetPrefix returns the prefix of the names of a ResNet image tower; ok is false if there is none.
func resnetPrefix(c *Checkpoint) (prefix string, ok bool) {
	if c.Has("visual." + stemTensor) {
		return "visual.", true
	}

	for _, n := range c.Names() {
		if prefix, ok := strings.CutSuffix(n, stemTensor); ok {
			return prefix, true
		}
	}

	return "", false
}

// resnet reads a ResNet image tower. Its width is that of the attention pooling, 32 times the channels of the stem.
func (f *finder) resnet(prefix string, arch *Arch) {
	vision, pool := &arch.Vision, prefix+"attnpool."
	stem, positions := f.find(prefix+stemTensor, -1, -1, 1, 1), f.find(pool+"positional_embedding", -1, -1)
	if f.err != nil {
		return
	}

	channels := stem.Shape[0]
	if channels%2 != 0 {
		f.fail("tensor %q has %d channels, want an even number", stem.Name, channels)
		return
	}

	vision.Width, vision.Patch, vision.EmbedDim = 32*channels, 32, arch.Text.EmbedDim
	f.shape(positions, -1, vision.Width)
	n := positions.Shape[0] - 1
	if vision.Image = vision.Patch * side(n); vision.Image == 0 {
		f.fail("tensor %q has %d positions, want one for the mean and a square number of cells", positions.Name, n+1)
		return
	}

	for i := range 4 {
		blocks := f.count(fmt.Sprintf("%slayer%d.", prefix, i+1))
		if blocks == 0 {
			f.fail("stage %slayer%d of the ResNet is missing", prefix, i+1)
			return
		}
		vision.Stages = append(vision.Stages, blocks)
	}

	for _, layer := range vision.Convolutions() {
		at := func(name string) string { return prefix + strings.TrimPrefix(name, "visual.") }
		norm := at(layer.Norm) + "."
		stored := convolution{f.find(at(layer.Name)+".weight", layer.Out, layer.In, layer.Kernel, layer.Kernel),
			f.find(norm+"weight", layer.Out), f.find(norm+"bias", layer.Out), f.find(norm+"running_mean", layer.Out),
			f.find(norm+"running_var", layer.Out)}
		if f.err != nil {
			return
		}
		weight, bias := stored.folded()
		f.put(layer.Name+".weight", weight)
		f.put(layer.Name+".bias", bias)
	}

	f.put("visual.attnpool.positional_embedding", positions)
	for _, name := range []string{"q_proj.", "k_proj.", "v_proj."} {
		f.pair("visual.attnpool."+name, pool+name, vision.Width, vision.Width)
	}

	f.pair("visual.attnpool.c_proj.", pool+"c_proj.", vision.EmbedDim, vision.Width)
}
