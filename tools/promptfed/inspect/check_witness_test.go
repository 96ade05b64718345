package inspect

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// witnessed returns a copy of testdata/witness, which promptfed.export_backbone wrote (tools/golden/backbones.py), with
// changes of the witness and without digests of its files.
func witnessed(t *testing.T, change func(m tensor.Map, text map[string]string)) *bundle.Bundle {
	t.Helper()
	dir := t.TempDir()
	goldentest.NoError(t, os.CopyFS(dir, os.DirFS("testdata/witness")))
	manifest, keys := filepath.Join(dir, bundle.ManifestFile), map[string]any{}
	goldentest.NoError(t, json.Unmarshal([]byte(filetest.Read(t, manifest)), &keys))
	delete(keys, "files")
	text := goldentest.JSON(t, keys)
	filetest.Write(t, manifest, text)
	m, about, err := safetensors.ReadFile(filepath.Join(dir, witnessFile))
	goldentest.NoError(t, err)
	about = maps.Clone(about)
	change(m, about)
	goldentest.NoError(t, safetensors.WriteFile(filepath.Join(dir, witnessFile), m, about))
	b, err := bundle.Find(dir)
	goldentest.NoError(t, err)
	return b
}

// A bundle is compared with the numbers of PyTorch beside it: any other number, and any other size, is an error.
func TestWitness(t *testing.T) {
	orttest.RequireLibrary(t)
	check := func(b *bundle.Bundle) (*checks, error) {
		done := &checks{}
		return done, done.witness(t.Context(), b, ort.Options{WeightsDir: b.WeightsDir()})
	}
	done, err := check(witnessed(t, func(tensor.Map, map[string]string) {}))
	if err != nil || len(done.Checks) != 6 {
		t.Fatalf("%+v, %v", done.Checks, err)
	}
	for name, what := range map[string]string{"pixels": "preprocessing", "image": "image features",
		"text": "text features", "prompts": "features of prompts", "loss": "loss", "gradient": "gradient of a prompt"} {
		_, err := check(witnessed(t, func(m tensor.Map, _ map[string]string) {
			for i := range m[name].Data {
				m[name].Data[i] *= 1.01
			}
		}))
		if err == nil || !strings.Contains(err.Error(), "difference of "+what+": 0.0") {
			t.Errorf("%s: %v", name, err)
		}
		_, err = check(witnessed(t, func(m tensor.Map, _ map[string]string) { delete(m, name) }))
		if err == nil || !strings.Contains(err.Error(), "tensor "+name+" must be F32") {
			t.Errorf("without %s: %v", name, err)
		}
	}
	for want, change := range map[string]func(m tensor.Map, text map[string]string){
		"labels are [3], want one of 3 classes": func(_ tensor.Map, text map[string]string) {
			text["labels"] = "[3]"
		},
		"classes: invalid character": func(_ tensor.Map, text map[string]string) {
			text["classes"] = "cat"
		},
		"tensor text must be F32 and have the shape [1 6]": func(_ tensor.Map, text map[string]string) {
			text["texts"] = `["a"]`
		},
		"tensor gradient must be F32 and have the shape [1 8]": func(m tensor.Map, _ map[string]string) {
			m["prompt"] = tensor.New(2)
		},
	} {
		if _, err := check(witnessed(t, change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	b := witnessed(t, func(tensor.Map, map[string]string) {})
	b.RoundsImage, done = true, &checks{}
	err = done.imageTower(t.Context(), b, ort.Options{WeightsDir: b.WeightsDir()})
	if err != nil || len(done.Checks) != 2 {
		t.Errorf("without a gradient: %+v, %v", done.Checks, err)
	}
	goldentest.NoError(t, os.Remove(filepath.Join(b.Dir, witnessPicture)))
	if _, err := check(b); err == nil || !strings.Contains(err.Error(), witnessPicture) {
		t.Errorf("without a picture: %v", err)
	}
}
