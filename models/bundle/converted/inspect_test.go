package converted_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/goldentest"
)

// The numbers are those of tools/golden/bundle.py: two towers of 2 blocks with 12 tensors each; 5 more in the text
// tower (tokens, positions, final norm, projection), 8 more in the image tower; the logarithm of the scale. Hugging
// Face's files have separate query, key and value: 4 more in each block.
func TestInspect(t *testing.T) {
	b := convert(t, "testdata/openai.pt", sources[0].o)
	for _, c := range []struct {
		path, kind, format string
		tensors            int
		files              []string
	}{
		{b.WeightsDir(), bundle.KindBundle, "openai", 4*12 + 5 + 8, []string{"image.onnx", "text.onnx",
			"tokenizer.json", "weights.safetensors"}},
		{"testdata/openai.pt", bundle.KindCheckpoint, "openai", 4*12 + 5 + 8 + 1 + 3, []string{"openai.pt"}},
		{"testdata/huggingface", bundle.KindCheckpoint, "huggingface", 4*16 + 5 + 8 + 1 + 2,
			[]string{"model.safetensors", "config.json", "vocab.json", "merges.txt", "preprocessor_config.json"}},
		{"testdata/huggingface/model.safetensors", bundle.KindCheckpoint, "huggingface", 4*16 + 5 + 8 + 1 + 2,
			[]string{"model.safetensors", "config.json", "vocab.json", "merges.txt", "preprocessor_config.json"}},
		{"testdata/golden.safetensors", bundle.KindSafetensors, "state_dict", 11 + 4, []string{"golden.safetensors"}},
		{filepath.Join(b.WeightsDir(), converted.ImageFile), bundle.KindONNX, "promptfed", -1, []string{"image.onnx",
			"weights.safetensors"}},
	} {
		r, err := bundle.Inspect(c.path)
		goldentest.NoError(t, err)
		var files []string
		for _, f := range r.Files {
			files = append(files, f.Name)
			if f.Size <= 0 {
				t.Errorf("%s: %s has %d bytes", c.path, f.Name, f.Size)
			}
		}
		if r.Kind != c.kind || r.Format != c.format || c.tensors >= 0 && len(r.Tensors) != c.tensors {
			t.Errorf("%s: %s of %s with %d tensors, want %s of %s with %d", c.path, r.Kind, r.Format, len(r.Tensors),
				c.kind, c.format, c.tensors)
		}
		if d := cmp.Diff(c.files, files); d != "" {
			t.Errorf("%s: files %s", c.path, d)
		}
	}
	r, err := bundle.Inspect("testdata/huggingface")
	if err != nil || r.Problem != "" || r.Arch == nil || r.Arch.Name() != "ViT, 2 layers, width 18, patch size 8" {
		t.Errorf("arch %+v, problem %q, %v", r.Arch, r.Problem, err)
	}
	r, err = bundle.Inspect(filepath.Join(b.WeightsDir(), converted.ImageFile))
	goldentest.NoError(t, err)
	in := []bundle.ValueReport{{Name: "pixels", DType: "F32", Shape: []string{"B", "3", "16", "16"}}}
	out := []bundle.ValueReport{{Name: "image", DType: "F32", Shape: []string{"B", "6"}}, {Name: "patches",
		DType: "F32",
		Shape: []string{"B", "4", "6"}}}
	if d := cmp.Diff(in, r.Inputs) + cmp.Diff(out, r.Outputs); d != "" {
		t.Error(d)
	}
	if r.Opsets[""] != 18 || r.Ops["Softmax"] == 0 {
		t.Errorf("operator sets %v, operators %v", r.Opsets, r.Ops)
	}
	_, err = bundle.Inspect("testdata/nothing")
	goldentest.WantErrorOf(t, "nothing there", err, "testdata/nothing")
}
