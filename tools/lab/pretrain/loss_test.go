package pretrain

import (
	"context"
	"math"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// formula is the same as in tools/golden/pretrain.py.
func formula(name string, base, size float64, shape ...int) *tensor.Tensor {
	t := tensor.New(shape...)
	s := 0
	for _, b := range []byte(name) {
		s += int(b)
	}
	for i := range t.Data {
		t.Data[i] = float32(base + size*math.Sin(0.7*float64(i)+float64(s)))
	}
	return t
}

// scattered is the same as in tools/golden/pretrain.py.
func scattered(name string, base, size float64, shape ...int) *tensor.Tensor {
	t := formula(name, 0, 0, shape...)
	s := 0
	for _, b := range []byte(name) {
		s += int(b)
	}
	for i := range t.Data {
		v := 43758.5453 * math.Sin(12.9898*float64(i)+float64(s))
		t.Data[i] = float32(base + size*(2*(v-math.Floor(v))-1))
	}
	return t
}

// The expected losses, gradients and batch statistics are PyTorch's in float64, from tools/golden/pretrain.py, for the
// same weights and inputs.
func TestStepEqualsPyTorch(t *testing.T) {
	checkStep(t, "step.safetensors", clip.VisionArch{Width: 12, Layers: 2, Heads: 3, Patch: 4, Image: 8, EmbedDim: 6})
	checkStep(t, "step-resnet.safetensors", clip.VisionArch{Width: 64, Heads: 1, Stages: []int{1, 1, 2, 1}, Patch: 32,
		Image: 64, EmbedDim: 6})
}

func checkStep(t *testing.T, file string, image clip.VisionArch) {
	text := clip.TextArch{Width: 8, Layers: 2, Heads: 2, Context: 77, EmbedDim: 6}
	visual := formula
	if image.ResNet() {
		visual = scattered
	}
	weights := fresh(text, image, 11, 1)
	for name, w := range weights {
		base := 0.0
		switch {
		case name == logScale:
			base = 2
		case strings.HasSuffix(name, ".weight") && (strings.Contains(name, "ln_") || strings.Contains(name, ".bn") ||
			strings.Contains(name, "downsample.1")):
			base = 1
		}
		weights[name] = formula(name, base, 0.3, w.Shape...)
		if strings.HasPrefix(name, "visual.") {
			weights[name] = visual(name, base, 0.3, w.Shape...)
		}
	}
	in := weights.Clone()
	in[inPixels] = visual("pixels", 0, 1, 5, 3, image.Image, image.Image)
	in[inTokens] = tensor.OfInts([]int64{9, 1, 2, 10, 0, 0, 9, 3, 10, 0, 0, 0, 9, 1, 2, 10, 0, 0, 9, 4, 5, 6, 7, 10, 9,
		3, 10, 0, 0, 0}, 5, 6)
	in[inEnd] = tensor.OfInts([]int64{3, 2, 3, 5, 2}, 5)
	in[inTargets] = Targets([]string{"a", "b", "a", "c", "b"}, make([]string, 5), 0)

	model, err := stepGraph(text, image, weights, 5, 6)
	goldentest.NoError(t, err)
	got, err := ort.RunOnce(context.Background(), model, ort.Options{}, in)
	goldentest.NoError(t, err)
	want := orttest.Golden(t, "testdata/"+file)
	if n := len(weights) + 1 + len(freshMoments(image)); len(want) != n || len(got) != n {
		t.Fatalf("%s: %d golden tensors and %d outputs, want %d of each", file, len(want), len(got), n)
	}
	for name, w := range want {
		g := got[name]
		if g == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		// Positions that no caption reaches are not stored; their gradient is zero.
		for i, v := range g.Data {
			e := float32(0)
			if i < len(w.Data) {
				e = w.Data[i]
			}
			if d := math.Abs(float64(v - e)); !(d <= 1e-4*max(1, w.MaxAbs())) {
				t.Fatalf("%s: %s[%d] is %g, PyTorch says %g", file, name, i, v, e)
			}
		}
	}
}

// By hand: a tenth of the way from 0 to 5 and from 1 to 3.
func TestFollow(t *testing.T) {
	m := freshMoments(clip.VisionArch{Width: 64, Heads: 1, Stages: []int{1, 1, 1, 1}, Patch: 32, Image: 32,
		EmbedDim: 1})
	batch := m.Clone()
	batch["visual.bn1.running_mean"].Data[0], batch["visual.bn1.running_var"].Data[0] = 5, 3
	follow(m, batch)
	if a, b := m["visual.bn1.running_mean"].Data[0], m["visual.bn1.running_var"].Data[0]; a != 0.5 ||
		math.Abs(float64(b)-1.2) > 1e-6 {
		t.Errorf("mean %g and variance %g, want 0.5 and 1.2", a, b)
	}
}

// Shares computed by hand: caption "a" occurs twice, so each of its pairs has half of a row; all pairs are of one
// class, so every pair has a third.
func TestTargets(t *testing.T) {
	captions, classes := []string{"a", "b", "a"}, []string{"x", "x", "x"}
	for _, c := range []struct {
		byClass float64
		want    []float32
	}{
		{0, []float32{0.5, 0, 0.5, 0, 1, 0, 0.5, 0, 0.5}},
		{0.75, []float32{0.375, 0.25, 0.375, 0.25, 0.5, 0.25, 0.375, 0.25, 0.375}},
	} {
		for i, v := range Targets(captions, classes, c.byClass).Data {
			if v != c.want[i] {
				t.Errorf("by class %g: target %d is %g, want %g", c.byClass, i, v, c.want[i])
			}
		}
	}
}

// Fresh weights of width 8 and 2 blocks: attention 1/√8, residual layers that over √4, the feed-forward layer
// 1/√16; torch's default for 3·4² and for 3·5² inputs; attention pooling 1/√8; gains and biases none.
func TestDeviations(t *testing.T) {
	for name, want := range map[string]float64{"token_embedding.weight": 0.02, "positional_embedding": 0.01,
		"visual.proj": 1 / math.Sqrt(8), "text_projection": 1 / math.Sqrt(8),
		"transformer.resblocks.0.attn.in_proj_weight":  1 / math.Sqrt(8),
		"transformer.resblocks.0.attn.out_proj.weight": 1 / math.Sqrt(32),
		"transformer.resblocks.0.mlp.c_fc.weight":      1. / 4, "visual.conv1.weight": 1. / 12, "ln_final.weight": 0,
		"visual.layer1.0.conv2.weight": 1. / 15, "visual.attnpool.c_proj.weight": 1 / math.Sqrt(8)} {
		shape := map[string][]int{"visual.conv1.weight": {8, 3, 4, 4}, "visual.layer1.0.conv2.weight": {7, 3, 5, 5},
			"visual.attnpool.c_proj.weight": {7, 8}}[name]
		if got := deviation(name, shape, 8, 2); !(math.Abs(got-want) <= 1e-15) {
			t.Errorf("%s: %v, by hand %v", name, got, want)
		}
	}
}
