package converted_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/safetensors"
)

// setNumber overwrites a tensor of one float32.
func setNumber(t *testing.T, path, name string, value float64) {
	t.Helper()
	f, err := safetensors.Open(path)
	goldentest.NoError(t, err)
	info, err := f.Info(name)
	f.Close()
	if err != nil || info.DType != "F32" || info.Length != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	data := []byte(filetest.Read(t, path))
	binary.LittleEndian.PutUint32(data[info.Offset:], math.Float32bits(float32(value)))
	filetest.Write(t, path, data)
}

// Inspect reports numbers that no model can have, and a conversion refuses them with the file, the tensor or key and
// the value.
func TestCheckpointNumbersThatCannotWork(t *testing.T) {
	replace := func(file, old, with string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, file)
			text := string(filetest.Read(t, path))
			if !strings.Contains(text, old) {
				t.Fatalf("%s has no %s", path, old)
			}
			filetest.Write(t, path, strings.Replace(text, old, with, 1))
		}
	}
	number := func(name string, value float64) func(*testing.T, string) {
		return func(t *testing.T, dir string) { setNumber(t, filepath.Join(dir, "model.safetensors"), name, value) }
	}
	const hf, siglip = "testdata/huggingface", "testdata/siglip"
	for _, c := range []struct {
		what, src string
		change    func(t *testing.T, dir string)
		parts     []string
	}{
		{"e^1000", hf, number("logit_scale", 1000), []string{`"logit_scale" holds 1000`, "logit_scale +Inf must be"}},
		{"e^88, a finite float32", hf, number("logit_scale", 88), []string{`"logit_scale" holds 88`, "1.65"}},
		{"e^-1000", hf, number("logit_scale", -1000), []string{`"logit_scale" holds -1000`, "logit_scale 0 must be"}},
		{"NaN", hf, number("logit_scale", math.NaN()), []string{"logit_scale is", "NaN"}},
		{"Inf", hf, number("logit_scale", math.Inf(1)), []string{"logit_scale is", "+Inf"}},
		{"a bias", siglip, number("logit_bias", -1e30), []string{`"logit_bias"`, "logit_bias -1e+30 must be"}},
		{"a mean", hf, replace("preprocessor_config.json", `"image_mean":[0.5,0.4,0.3]`, `"image_mean":[1e30,0,0]`),
			[]string{"mean [1e+30 0 0] must be from -1 to 2"}},
		{"an epsilon", hf, replace("config.json", `"layer_norm_eps":1e-05`, `"layer_norm_eps":1e10`),
			[]string{"eps 1e+10"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := filetest.Copy(t, t.TempDir(), c.src)
			c.change(t, dir)
			parts := append([]string{dir}, c.parts...)
			_, err := converted.Convert(dir, filepath.Join(t.TempDir(), "out"), converted.Options{})
			goldentest.WantErrorOf(t, "convert", err, parts...)
			r, err := bundle.Inspect(dir)
			if err != nil || r.Problem == "" || strings.Contains(r.Problem, "\n") {
				t.Fatalf("inspect: problem %q, %v", r.Problem, err)
			}
			for _, p := range c.parts {
				if !strings.Contains(r.Problem, p) {
					t.Errorf("inspect: %q does not tell %q", r.Problem, p)
				}
			}
		})
	}
}
