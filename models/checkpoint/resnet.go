package checkpoint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/models/clip"
	"promptfed/runtime/tensor"
)

// normEpsilon is the epsilon of batch normalisations: PyTorch's default, which no CLIP changes.
const normEpsilon = 1e-5

// stemTensor ends the name of the tensor that identifies a ResNet; the rest of that name is the tower's prefix.
const stemTensor = "layer1.0.conv1.weight"

// ResNetTower is CLIP's modified ResNet: its convolutions in order of execution, and the attention pooling.
type ResNetTower struct {
	Convolutions []Convolution
	Positions    *Handle // [grid*grid+1,width], with the mean's position first
	Q, K, V, Out Linear  // [width,width], Out [embed,width]
}

// Convolution is a convolution without bias, Weight [out,in,k,k], and the batch normalisation after it, whose Gain,
// Bias, Mean and Variance are [out].
type Convolution struct {
	Name                       string // in OpenAI's checkpoints, without .weight
	Weight                     *Handle
	Gain, Bias, Mean, Variance *Handle
}

// Folded returns the convolution and its normalisation with running statistics (Ioffe and Szegedy 2015, algorithm 2) as
// one convolution: weight [out,in,k,k] is Weight times s = Gain/sqrt(Variance+1e-5) of its channel, and bias [out] is
// Bias - Mean s. Both are computed in double precision on Load and rounded once.
func (c Convolution) Folded() (weight, bias *Handle) {
	weight = computed(c.Weight, func(t *tensor.Tensor) error {
		s, err := c.scales()
		if err == nil {
			scaleRows(t, s)
		}
		return err
	})
	bias = computed(c.Bias, func(t *tensor.Tensor) error {
		s, err := c.scales()
		if err != nil {
			return err
		}
		mean, err := finite(c.Mean)
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
		load: func() (*tensor.Tensor,
			error) {
			t, err := finite(h)
			if err == nil {
				err = change(t)
			}
			return t, err
		}}
}

// scaleRows multiplies each row, along the first axis, by its number.
func scaleRows(t *tensor.Tensor, s []float64) {
	n := len(t.Data) / len(s)
	for i, v := range t.Data {
		t.Data[i] = float32(float64(v) * s[i/n])
	}
}

// scales returns the factors of the convolution's channels.
func (c Convolution) scales() ([]float64, error) {
	gain, err := finite(c.Gain)
	if err != nil {
		return nil, err
	}
	variance, err := finite(c.Variance)
	if err != nil {
		return nil, err
	}
	s := make([]float64, len(gain.Data))
	for i, v := range variance.Data {
		if v < 0 {
			return nil, fmt.Errorf("tensor %q holds %g at %d, but a variance is not negative: the checkpoint is "+
				"damaged", c.Variance.Name, v, i)
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

// readResNet reads a ResNet image tower. Its width is the width of the attention pooling, 32 times the channels of the
// stem.
func (w *Weights) readResNet(f *finder, prefix string) {
	a, r := &w.Arch, &w.ResNet
	a.Kind, a.Patch = ResNet, 32
	pool := prefix + "attnpool."
	stem := f.find(prefix+stemTensor, -1, -1, 1, 1)
	r.Positions = f.find(pool+"positional_embedding", -1, -1)
	if f.err != nil {
		return
	}
	channels := stem.Shape[0]
	if channels%2 != 0 {
		f.fail("tensor %q has %d channels, want an even number", stem.Name, channels)
		return
	}
	width := 32 * channels
	a.Vision = Transformer{Width: width, Epsilon: normEpsilon}
	f.shape(r.Positions, -1, width)
	r.Q, r.K, r.V = f.linear(pool+"q_proj.", width, width), f.linear(pool+"k_proj.", width, width), f.linear(pool+
		"v_proj.", width, width)
	r.Out = f.linear(pool+"c_proj.", a.EmbedDim, width)
	n := r.Positions.Shape[0] - 1
	grid := int(math.Round(math.Sqrt(float64(max(n, 0)))))
	if grid == 0 || grid*grid != n {
		f.fail("tensor %q has %d positions, want one for the mean and a square number of cells", r.Positions.Name, n+1)
		return
	}
	a.ImageSize = a.Patch * grid
	for i := range 4 {
		blocks := f.count(fmt.Sprintf("%slayer%d.", prefix, i+1))
		if blocks == 0 {
			f.fail("stage %slayer%d of the ResNet is missing", prefix, i+1)
			return
		}
		a.Stages = append(a.Stages, blocks)
	}
	for _, c := range (clip.VisionArch{Width: width, Stages: a.Stages}).Convolutions() {
		at := func(name string) string { return prefix + strings.TrimPrefix(name, "visual.") }
		norm := at(c.Norm) + "."
		r.Convolutions = append(r.Convolutions, Convolution{Name: c.Name,
			Weight: f.find(at(c.Name)+".weight", c.Out, c.In, c.Kernel, c.Kernel),
			Gain:   f.find(norm+"weight", c.Out), Bias: f.find(norm+"bias", c.Out),
			Mean: f.find(norm+"running_mean", c.Out), Variance: f.find(norm+"running_var", c.Out)})
		if f.err != nil {
			return
		}
	}
}
