package converted_test

import (
	"fmt"
	"image"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/filetest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// TestMemoryOfBundles opens the bundles of PROMPTFED_TEST_BUNDLES (folders, separated as in PATH) at the same time,
// each with one session for images and one for prompt gradients, and runs a batch of 32 pictures and a step of 7
// classes through each. It prints the resident memory (proc(5), /proc/PID/status) under each set of options, or only
// under the one in PROMPTFED_TEST_BUNDLES_ONLY, since a process keeps some of the memory that it once used.
func TestMemoryOfBundles(t *testing.T) {
	list := os.Getenv("PROMPTFED_TEST_BUNDLES")
	if list == "" {
		t.Skip("PROMPTFED_TEST_BUNDLES is not set")
	}
	var bundles []*bundle.Bundle
	for _, dir := range filepath.SplitList(list) {
		b, err := bundle.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		bundles = append(bundles, b)
	}
	for _, v := range []struct {
		name    string
		options ort.Options
		most    float64
	}{
		{"default", ort.Options{}, 2600},
		{"no arena", ort.Options{NoArena: true}, 2600},
		{"optimization extended", ort.Options{OptLevel: ort.OptExtended}, 3000},
		{"prepack", ort.Options{Prepack: true}, 2600},
	} {
		if only := os.Getenv("PROMPTFED_TEST_BUNDLES_ONLY"); only != "" && only != v.name {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Logf("%-14s %s", "at first", residentMB(t))
			for _, b := range bundles {
				work(t, b, v.options)
			}
			if err := ort.TrimMemory(); err != nil {
				t.Error(err)
			}
			all := residentMB(t)
			t.Logf("%-14s %s", "at rest", all)
			if all[0] >= v.most {
				t.Errorf("%s, want less than %.0f MB", all, v.most)
			}
		})
	}
}

// work keeps both sessions of a bundle open until the test ends.
func work(t *testing.T, b *bundle.Bundle, o ort.Options) {
	t.Helper()
	model := bundletest.ImageModel(t, b)
	paths, err := filepath.Glob("../../../../shared/data/pacs/*/*/*.jpg")
	if err != nil || len(paths) < 32 {
		t.Skipf("%d PACS pictures (%v)", len(paths), err)
	}
	pixels := tensor.New(32, 3, b.Preprocess.Size, b.Preprocess.Size)
	for i := range pixels.Shape[0] {
		copy(pixels.Row(i).Data, b.Preprocess.Pixels(picture(t, paths[i*len(paths)/32])))
	}
	o.WeightsDir = b.WeightsDir()
	first := o
	first.Outputs = []string{bundle.ImageOutput}
	features := stays(t, model, first, tensor.Map{bundle.PixelsInput: pixels})[bundle.ImageOutput]
	t.Logf("%-14s %s", b.Name+" images", residentMB(t))

	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(16, b.Text.Width))
	f := bundletest.Prompts(t, b, g, []string{"dog", "elephant", "giraffe", "guitar", "horse", "house", "person"},
		clip.Prompt{Ctx: ctx})
	scores := unit(g.Input("image", graph.Float, graph.Static(features.Shape...))).MatMul(unit(f[0]).Transpose(1, 0))
	loss := graph.CrossEntropy(scores.MulScalar(100), g.Const(tensor.OfInts(make([]int64, 32), 32)))
	d := orttest.Gradients(t, loss, ctx)
	model = orttest.Model(t, graph.Output{Name: "gradient", Node: d[0]})
	prompt := tensor.New(16, b.Text.Width)
	for i := range prompt.Data {
		prompt.Data[i] = 0.02 * float32(i%7-3)
	}
	if out := stays(t, model, o, tensor.Map{"ctx": prompt, "image": features})["gradient"]; !(out.MaxAbs() > 0) {
		t.Errorf("%s: the gradient is %v", b.Name, out)
	}
	t.Logf("%-14s %s", b.Name+" step", residentMB(t))
}

func stays(t *testing.T, model *onnx.ModelProto, o ort.Options, in tensor.Map) tensor.Map {
	t.Helper()
	s := orttest.Open(t, model, o)
	out, err := s.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func picture(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := preprocess.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// memory holds VmRSS, RssAnon, RssFile and VmHWM in MB.
type memory [4]float64

func (m memory) String() string {
	return fmt.Sprintf("%5.0f MB resident: %5.0f private, %5.0f of files; peak %5.0f", m[0], m[1], m[2], m[3])
}

func residentMB(t *testing.T) (m memory) {
	t.Helper()
	raw := filetest.Read(t, "/proc/self/status")
	for line := range strings.Lines(string(raw)) {
		for i, key := range []string{"VmRSS:", "RssAnon:", "RssFile:", "VmHWM:"} {
			var kib float64
			if rest, ok := strings.CutPrefix(line, key); ok {
				if _, err := fmt.Sscan(rest, &kib); err != nil {
					t.Fatal(err)
				}
				m[i] = kib * 1024 / 1e6
			}
		}
	}
	return m
}
