package inspect

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/methodtest"
	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/tiny"
	"promptfed/models/tokenizer"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
)

// inspect describes in one line how a model treats texts, if the treatment is not that of the tokenizer.
func TestInspectShowsTexts(t *testing.T) {
	x := tokenizer.TextCleaning{Clean: tokenizer.Canonicalize, StripSep: true, Sep: "[SEP]"}
	for want, r := range map[string][]bundle.Report{
		"cleaned: canonicalize, token 0 for the separator [SEP]": {{Bundle: &bundle.Bundle{Texts: x}},
			{Arch: &checkpoint.Arch{Texts: checkpoint.Texts{TextCleaning: x}}}},
		"": {{Bundle: &bundle.Bundle{}}, {Arch: &checkpoint.Arch{}}},
	} {
		for _, r := range r {
			rows := inspectedOf(r, false).rows()
			i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "texts" })
			if (i >= 0) != (want != "") || i >= 0 && rows[i][1] != want {
				t.Errorf("%v, want %q", rows, want)
			}
		}
	}
}

// A GPU runs all of the towers of the program's bundles, in batches of 32 images.
func TestNothingIsLeftToTheCPU(t *testing.T) {
	for _, name := range tiny.Names() {
		b, err := bundle.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		image, err := b.ImageModel()
		if err != nil {
			t.Fatal(err)
		}
		step, err := stepModel(b, ort.CUDA)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*onnx.ModelProto{image, step} {
			fixed, err := graph.FixSizes(m, someSizes(m))
			if err != nil {
				t.Fatal(err)
			}
			if sizes, kernels := orttest.OffDevice(fixed); len(sizes)+len(kernels) > 0 {
				t.Errorf("%s: %q, %q", name, sizes, kernels)
			}
		}
	}
}

// check reads a method's file as a run does: its summands, or the fault in one line.
func TestCheckReadsMethods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	content, err := methodtest.ONNXFiles["scaffold"]()
	if err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string][]byte{
		"method with the loss cross entropy + correction": content,
		path + `: metadata promptfed.method: "invalid`: []byte(strings.Replace(string(content), `{"version`,
			`["version`, 1))} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		var c checks
		got := ""
		if err := c.all(t.Context(), path, nil, nil); err != nil {
			got = err.Error()
		} else {
			got = c.Checks[0].What
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
