package grad_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// TestExports differentiates models of the exporters of several PyTorch versions and compares with autograd:
// NET.safetensors beside each NET-*.onnx. testdata/exported has some; PROMPTFED_TEST_EXPORTS names a folder with all
// models of tools/golden/exported_onnx.py.
func TestExports(t *testing.T) {
	dirs := []string{"testdata/exported"}
	if dir := os.Getenv("PROMPTFED_TEST_EXPORTS"); dir != "" {
		dirs = append(dirs, filepath.SplitList(dir)...)
	}
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*.onnx"))
		if len(files) == 0 {
			t.Errorf("%s holds no exports", dir)
		}
		for _, path := range files {
			base := strings.TrimSuffix(filepath.Base(path), ".onnx")
			t.Run(base, func(t *testing.T) {
				net, _, _ := strings.Cut(base, "-")
				want, _, err := safetensors.ReadFile(filepath.Join(dir, net+".safetensors"))
				goldentest.NoError(t, err)
				sameAsAutograd(t, path, want)
			})
		}
	}
}

func sameAsAutograd(t *testing.T, path string, want tensor.Map) {
	f, err := graph.ReadFile(path)
	goldentest.NoError(t, err)
	in, out := f.Inputs()[0].Name(), f.Outputs[0].Name
	forward, err := f.Model(f.Outputs...)
	goldentest.NoError(t, err)
	x, c := want["x"], want["c"]
	// the export has a fixed batch of three: repeat one example
	if s := f.Inputs()[0].Shape(); s[0].Is(3) {
		x, c = x.Rows([]int{0, 1, 0}), c.Rows([]int{0, 1, 0})
	}
	two := func(m tensor.Map, name string) *tensor.Tensor { return m[name].Rows([]int{0, 1}) }
	// operators without kernels for a GPU are the file's own
	run := func(t *testing.T, m *onnx.ModelProto, feeds tensor.Map) tensor.Map {
		out, fixed := orttest.RunFixed(t, m, "", feeds)
		if sizes, _ := orttest.OffDevice(fixed); len(sizes) > 0 {
			t.Errorf("with fixed sizes it has %q", sizes)
		}
		return out
	}
	near(t, "y", two(run(t, forward, tensor.Map{in: x}), out), want["y"], 1e-4)
	back, err := grad.VJPModel(f, []string{out}, []string{in})
	goldentest.NoError(t, err)
	near(t, "gradient", two(run(t, back, tensor.Map{in: x, grad.Cotangent + out: c}), grad.Gradient+in), want["grad"],
		1e-4)
}
