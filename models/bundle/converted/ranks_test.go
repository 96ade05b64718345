package converted_test

import (
	"cmp"
	"fmt"
	"image"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// unit divides rows by their Euclidean norm.
func unit(x graph.Node) graph.Node { return x.Div(x.Square().SumKeep(-1).Sqrt()) }

// sameRanks compares how rows of scores order the classes. Two classes whose scores in PyTorch differ by at most
// tolerance may have either order. It returns the number of compared pairs and of such pairs.
func sameRanks(t *testing.T, what string, got, want *tensor.Tensor, tolerance float64) (pairs, close int) {
	t.Helper()
	for i := range want.Shape[0] {
		g, w := got.Row(i).Data, want.Row(i).Data
		for a := range w {
			for b := range a {
				pairs++
				if math.Abs(float64(w[a]-w[b])) <= tolerance {
					close++
				} else if cmp.Compare(g[a], g[b]) != cmp.Compare(w[a], w[b]) {
					t.Errorf("%s %d: scores %v, PyTorch orders them as %v", what, i, g, w)
				}
			}
		}
	}
	return pairs, close
}

// grey returns the brightness of a JPEG file as stored.
func grey(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	goldentest.NoError(t, err)
	defer f.Close()
	img, err := jpeg.Decode(f)
	goldentest.NoError(t, err)
	planes, ok := img.(*image.YCbCr)
	if !ok {
		t.Fatalf("%s is decoded as a %T", path, img)
	}
	return &image.Gray{Pix: planes.Y, Stride: planes.YStride, Rect: planes.Rect}
}

// Real pictures pass through this program's own resizing, a ResNet and the text tower; classes have the same ranks as
// in PyTorch with Pillow's pixels. Pictures are grey, since JPEG decoders enlarge colours differently; even so, scores
// differ by up to 0.01.
func TestRanksOnPictures(t *testing.T) {
	orttest.RequireLibrary(t)
	root := "../../../../shared/data/pacs"
	if _, err := os.Stat(root); err != nil {
		t.Skip("no PACS pictures: ", err)
	}
	var scores map[string][]float32
	goldentest.ReadJSON(t, "testdata/resnet/scores.json", &scores)
	b := convert(t, resnetPT, resnetOptions())
	var names []string
	for name := range scores {
		names = append(names, name)
	}
	slices.Sort(names)
	want, pixels := tensor.New(len(names), len(classes)), tensor.New(len(names), 3, 64, 64)
	for i, name := range names {
		img := grey(t, filepath.Join(root, filepath.FromSlash(name)))
		copy(want.Row(i).Data, scores[name])
		copy(pixels.Row(i).Data, b.Preprocess.Pixels(img))
	}
	model := bundletest.ImageModel(t, b)
	features := orttest.Run(t, model, b.WeightsDir(), tensor.Map{bundle.PixelsInput: pixels})[bundle.ImageOutput]
	g := graph.New()
	golden := resnetGolden(t)
	ctx := g.Input("ctx", graph.Float, graph.Static(golden["ctx"].Shape...))
	f := bundletest.Prompts(t, b, g, classes, clip.Prompt{Ctx: ctx})
	model = orttest.Model(t, graph.Output{Name: "scores",
		Node: unit(g.Const(features)).MatMul(unit(f[0]).Transpose(1, 0))})
	got := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"ctx": golden["ctx"]})["scores"]
	pairs, close := sameRanks(t, "picture", got, want, 0.01)
	if close > pairs/5 {
		t.Errorf("%d of %d pairs of classes are too close to tell", close, pairs)
	}
	for i := range want.Data {
		if d := math.Abs(float64(got.Data[i] - want.Data[i])); d > 0.01 {
			t.Errorf("score %d: %g, PyTorch has %g", i, got.Data[i], want.Data[i])
		}
	}
}

// PROMPTFED_TEST_FULLSIZE names the folder that tools/golden/fullsize.py wrote: full-size checkpoints in every format
// with NAME.golden.safetensors, PyTorch's outputs in double precision. PROMPTFED_TEST_VOCAB is
// bpe_simple_vocab_16e6.txt.gz. If promptfed convert has written a bundle to NAME.bundle, that bundle is tested.
func TestFullSizeCheckpoints(t *testing.T) {
	dir := os.Getenv("PROMPTFED_TEST_FULLSIZE")
	if dir == "" {
		t.Skip("PROMPTFED_TEST_FULLSIZE is not set")
	}
	goldens, err := filepath.Glob(filepath.Join(dir, "*.golden.safetensors"))
	if err != nil || len(goldens) == 0 {
		t.Fatalf("%s holds no golden files (%v)", dir, err)
	}
	for _, path := range goldens {
		src := path[:len(path)-len(".golden.safetensors")]
		t.Run(filepath.Base(src), func(t *testing.T) {
			if b, err := bundle.Open(src + ".bundle"); err == nil {
				fullSize(t, b, orttest.Golden(t, path))
				return
			}
			if _, err := os.Stat(src); err != nil {
				src += ".pt"
			}
			fullSize(t, convert(t, src, converted.Options{Vocab: os.Getenv("PROMPTFED_TEST_VOCAB")}), orttest.Golden(t,
				path))
		})
	}
}

// fullSize compares a bundle with PyTorch's outputs, with matrices as stored in the file and with packed ones.
func fullSize(t *testing.T, b *bundle.Bundle, want tensor.Map) {
	t.Logf("%s, notes %q", b.Architecture, b.Notes)
	for _, prepack := range []bool{false, true} {
		t.Run(fmt.Sprint("prepack=", prepack), func(t *testing.T) {
			fullSizeWith(t, b, want, ort.Options{WeightsDir: b.WeightsDir(), Prepack: prepack})
		})
	}
}

func fullSizeWith(t *testing.T, b *bundle.Bundle, want tensor.Map, o ort.Options) {
	model := bundletest.ImageModel(t, b)
	out := orttest.RunOnce(t, model, o, tensor.Map{bundle.PixelsInput: want["pixels"]})
	g := graph.New()
	whole := bundletest.Sentences(t, b, g, "a photo of a cat.", "the quick brown fox, jumping", "dog")
	ctx := g.Input("ctx", graph.Float, graph.Static(want["ctx"].Shape...))
	f := bundletest.Prompts(t, b, g, []string{"dog", "elephant", "giraffe", "guitar", "horse", "house", "person"},
		clip.Prompt{Ctx: ctx})
	scores := unit(g.Const(out[bundle.ImageOutput])).MatMul(unit(f[0]).Transpose(1, 0))
	d := orttest.Gradients(t, graph.CrossEntropy(scores.MulScalar(100), g.Const(want["target"])), ctx)
	model = orttest.Model(t, graph.Output{Name: "text", Node: whole}, graph.Output{Name: "end", Node: f[0]},
		graph.Output{Name: "scores", Node: scores}, graph.Output{Name: "gradient", Node: d[0]})
	texts := orttest.RunOnce(t, model, o, tensor.Map{"ctx": want["ctx"]})
	for name, x := range texts {
		out[name] = x
	}
	for k, name := range []string{"image", "patches", "text", "end", "gradient", "scores"} {
		if !out[name].SameShape(want[name]) {
			t.Fatalf("%s: %v, want %v", name, out[name], want[name])
		}
		worst, own := 0.0, float64(want["own"].Data[k])
		for i, v := range want[name].Data {
			worst = math.Max(worst, math.Abs(float64(out[name].Data[i]-v)))
		}
		worst /= want[name].MaxAbs()
		t.Logf("%-8s differs by %.1e of the largest value, PyTorch's float32 by %.1e", name, worst, own)
		// Patch features of a deep ResNet with random weights are ill-conditioned: rounding its inputs changes them as
		// much.
		if !(worst <= 1e-4 || name == "patches" && worst <= 2*own) {
			t.Errorf("%s: differs by %g of the largest value", name, worst)
		}
	}
	pairs, close := sameRanks(t, "picture", out["scores"], want["scores"], 1e-5)
	t.Logf("%d pairs of classes ranked the same, %d of them closer than 1e-5", pairs, close)
}
