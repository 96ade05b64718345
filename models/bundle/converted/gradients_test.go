package converted

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Gradient files are listed with a version of their own, hold no weight of the towers, and are compared with the towers
// when the bundle is opened. A file that bundle.json does not list is refused, and so is another version.
func TestGradientFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	b, err := Convert("testdata/huggingface", dir, Options{Gradients: true})
	goldentest.NoError(t, err)
	if b.Text.Layers != 0 || b.TakesPromptTokens() || b.Tokens() != 0 {
		t.Errorf("the inside of a tower can be reached: %+v", b.Text)
	}
	usual, err := Convert("testdata/huggingface", filepath.Join(t.TempDir(), "small"), Options{})
	goldentest.NoError(t, err)
	if usual.Digest() == b.Digest() {
		t.Error("gradient files do not belong to the digest")
	}
	for _, name := range []string{bundle.ImageGradientFile, bundle.TextGradientFile} {
		m, err := onnx.ReadFile(filepath.Join(dir, name))
		goldentest.NoError(t, err)
		files, err := onnx.ExternalFiles(m)
		if err != nil || !slices.Equal(files, []string{"model.safetensors"}) {
			t.Errorf("%s refers to %q, %v", name, files, err)
		}
		for _, w := range m.Graph.Initializer {
			// The largest constant that is no weight is the causal mask of the context's 32 tokens.
			if n := len(onnx.RawData(w)); !onnx.IsExternal(w) && n > 4*32*32 {
				t.Errorf("%s holds %d bytes of %s", name, n, w.Name)
			}
		}
	}

	var compared []string
	run := func(m *onnx.ModelProto, _ string, in tensor.Map) (tensor.Map, error) {
		compared = append(compared, in.Names()...)
		return nil, errors.New("not in this test")
	}
	_, err = open(dir, run)
	goldentest.WantErrorOf(t, "a comparison that fails", err, bundle.ImageGradientFile, "not in this test")
	if !slices.Equal(compared, []string{bundle.PixelsInput}) {
		t.Errorf("compared for %q", compared)
	}

	manifest := filepath.Join(dir, bundle.ManifestFile)
	data := filetest.Read(t, manifest)
	filetest.Write(t, manifest, strings.Replace(string(data), `"bundle": 4`, `"bundle": 3`, 1))
	_, err = open(dir, nil)
	goldentest.WantErrorOf(t, "version 3", err, "bundle version 3, but with these files it is 4")
	filetest.Write(t, filepath.Join(usual.Dir, bundle.TextGradientFile), filetest.Read(t, dir, bundle.TextGradientFile))
	_, err = open(usual.Dir, run)
	goldentest.WantErrorOf(t, "a file that is not listed", err, bundle.TextGradientFile, "does not list it")
}

// Features and gradients of texts and images by gradient files are those of the usual way, and a device computes them.
// The comparison when the bundle is opened finds the same.
func TestGradientFilesOnADevice(t *testing.T) {
	orttest.RequireLibrary(t)
	run := func(m *onnx.ModelProto, dir string, in tensor.Map) (tensor.Map, error) {
		return ort.RunOnce(t.Context(), m, ort.Options{WeightsDir: dir}, in)
	}
	var outs []tensor.Map
	for _, gradients := range []bool{false, true} {
		b, err := Convert("testdata/huggingface", filepath.Join(t.TempDir(), "small"), Options{Gradients: gradients})
		if err == nil {
			b, err = open(b.Dir, run)
		}
		goldentest.NoError(t, err)
		g, size := graph.New(), b.Preprocess.Size
		ctx := g.Input("ctx", graph.Float, graph.Static(3, b.Text.Width))
		pixels := bundle.AddPixelsInput(g, 2, size)
		prompts := []clip.Prompt{{Ctx: ctx}, {Ctx: ctx, Class: clip.Front}}
		text := bundletest.Prompts(t, b, g, []string{"cat", "the thing"}, prompts...)
		image, _, err := b.Image(g, pixels, clip.VisionPrompts{})
		goldentest.NoError(t, err)
		loss := image.L2Normalize().MatMulT(text[0].Add(text[1]).L2Normalize()).Square().Sum()
		dx := orttest.Gradients(t, loss, ctx, pixels)
		model := orttest.Model(t, graph.Output{Name: "loss", Node: loss},
			graph.Output{Name: "ctx gradient", Node: dx[0]}, graph.Output{Name: "pixels gradient", Node: dx[1]})
		outs = append(outs, orttest.Run(t, model, b.WeightsDir(), tensor.Map{"ctx": bundle.Noise(3, b.Text.Width),
			bundle.PixelsInput: bundle.Noise(2, 3, size, size)}))
	}
	for _, name := range outs[0].Names() {
		orttest.CheckClose(t, name, outs[1][name], outs[0][name])
	}
}
