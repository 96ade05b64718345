package exported_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"promptfed/models/bundle"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// copyTower copies a folder of testdata, with another bundle.json.
func copyTower(t *testing.T, name, manifest string) string {
	t.Helper()
	dir := filetest.Copy(t, filepath.Join(t.TempDir(), "tower"), filepath.Join("testdata", name))
	filetest.Write(t, filepath.Join(dir, bundle.ManifestFile), manifest)
	return dir
}

// TestConfigErrors: each error says what is wrong, where, and what to write instead.
func TestConfigErrors(t *testing.T) {
	const ids, embeddings, both = "hf-half", "openai-emb-cut-113-torchscript", "optimum-sdpa-features"
	for _, c := range []struct{ what, tower, manifest, want string }{
		{"unknown key", ids, `{"nmae": "x"}`, `unknown field "nmae"; without weights the keys are name,`},
		{"no such file", ids, `{"text": {"file": "tower.onnx"}}`, `tower.onnx is missing`},
		{"path outside", ids, `{"text": {"file": "../text.onnx"}}`,
			`"../text.onnx" is not the path of a file inside the bundle`},
		{"no such output", ids, `{"image": {"output": "pooled"}}`,
			`image.output "pooled" in bundle.json is none of its outputs image_embeds float`},
		{"no such input", ids, `{"text": {"ids": "tokens"}}`,
			`text.ids "tokens" in bundle.json is none of its inputs input_ids int64`},
		{"output of the other tower", both, `{"image": {"output": "text_embeds"}}`, `pixels`},
		{"wrong width", ids, `{"text_width": 9}`, `bundle.json says text_width 9, text.onnx has 8`},
		{"wrong embedding dimension", ids, `{"embed_dim": 9}`, `bundle.json says embed_dim 9, text.onnx has 6`},
		{"wrong size", ids, `{"image_size": 32}`, `image`},
		{"wrong context", ids, `{"context_length": 77}`, `77`},
		{"wrong preprocessing", ids, `{"preprocess": {"size": 32}}`,
			`preprocess: images of 32 pixels for a tower that takes 16`},
		{"wrong scale", ids, `{"logit_scale": -1}`, `bundle.json: logit_scale -1 must be a number from`},
		{"huge scale", ids, `{"logit_scale": 1e40}`, `bundle.json: logit_scale 1e+40 must be a number from`},
		{"huge logarithm", ids, `{"logit_scale_log": 1000}`, `bundle.json: logit_scale +Inf must be a number from`},
		{"huge bias", ids, `{"logit_scale": 9, "logit_bias": -1e30}`, `bundle.json: logit_bias -1e+30 must be`},
		{"huge mean", ids, `{"preprocess": {"mean": [0, 1e30, 0]}}`, `mean [0 1e+30 0] must be from -1 to 2`},
		{"tiny std", ids, `{"preprocess": {"std": [1, 1e-30, 1]}}`, `std [1 1e-30 1] from 1e-05 to 10`},
		{"two scales", ids, `{"logit_scale": 50, "logit_scale_log": 1}`, `leave one of them out`},
		{"no table", embeddings, `{}`,
			`write "token_embedding": {"file": "tokens.safetensors", "tensor": NAME} in bundle.json`},
		{"no such tensor", embeddings, `{"token_embedding": {"file": "tokens.safetensors", "tensor": "rows"}}`,
			`has no tensor "rows"; it has weight`},
		{"place outside the file", embeddings,
			`{"token_embedding": {"file": "tokens.safetensors", "offset": 20000, "shape": [530, 8]}}`,
			`the token embedding: the model reads 16960 bytes at 20000 of `},
		{"truth values", embeddings,
			`{"token_embedding": {"file": "tokens.safetensors", "offset": 80, "dtype": "BOOL", "shape": [530, 8]}}`,
			`the token embedding is stored as "BOOL"`},
		{"not its rows", embeddings,
			`{"token_embedding": {"file": "tokens.safetensors", "offset": 80, "shape": [1060, 4]}}`,
			`it is 4 wide, the tower takes 8`},
		{"cut short", ids, `{"files": {"text.onnx": {"size": 12}}}`, `bundle.json says 12`},
		{"damaged", ids, `{"files": {"text.onnx": {"sha256": "12"}}}`,
			`bundle.json says 12: the file was changed or damaged; get the original file again`},
		{"a file that is not there", ids, `{"files": {"none": {}}}`, `none is missing, but bundle.json lists it`},
		{"a file elsewhere", ids, `{"files": {"../x": {}}}`, `"../x" is not the path of a file inside the bundle`},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := bundle.Open(copyTower(t, c.tower, c.manifest))
			goldentest.WantError(t, err, c.want)
		})
	}
}

// TestConfigPreprocessing: files of the folder take precedence over OpenAI's values, and bundle.json over both.
func TestConfigPreprocessing(t *testing.T) {
	mayRun(t)
	dir := copyTower(t, "hf-half", `{}`)
	check := func(mean, std float32, notes int) {
		t.Helper()
		b := openBundle(t, dir)
		if p := b.Preprocess; p.Size != 16 || p.Mean[0] != mean || p.Std[0] != std || len(b.Notes) != notes {
			t.Errorf("%+v, notes %q; want mean %v, std %v, %d notes", p, b.Notes, mean, std, notes)
		}
	}
	check(0.48145466, 0.26862954, 2) // no scale, no preprocessing
	filetest.Write(t, filepath.Join(dir, "preprocessor_config.json"),
		`{"size": {"shortest_edge": 16}, "crop_size": 16, "resample": 3, `+
			`"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}`)
	check(0.5, 0.25, 1)
	filetest.Write(t, filepath.Join(dir, "open_clip_config.json"),
		`{"preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}}`)
	check(0.5, 0.25, 1)
	filetest.Write(t, filepath.Join(dir, bundle.ManifestFile),
		`{"logit_scale": 50, "preprocess": {"mean": [0.1, 0.2, 0.3]}}`)
	check(0.1, 0.25, 0)
	b, r := openBundle(t, dir), bundle.Report{}
	goldentest.NoError(t, os.Remove(filepath.Join(dir, "text.onnx")))
	b.Report(&r)
	goldentest.Contains(t, fmt.Sprint(r.Files), "{text.onnx -1}") // its size is not known any more
}
