package exported_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/exported"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

const layouts = "testdata/layouts"

// specOf returns the specification of a layout: its folder, or one folder for each tower.
func specOf(dir string) string {
	switch filepath.Base(dir) {
	case "fastembed":
		return "image=" + dir + "/image,text=" + dir + "/text"
	case "quantised":
		return "folder=" + dir + ",variant=q4"
	}
	return dir
}

// onLayouts tests each layout that tools/golden/layouts.py wrote, with PyTorch's outputs for it.
func onLayouts(t *testing.T, test func(t *testing.T, dir string, golden tensor.Map)) {
	mayRun(t)
	list, err := filepath.Glob(layouts + "/*/golden.safetensors")
	if err != nil || len(list) < 13 {
		t.Fatalf("%d layouts, %v", len(list), err)
	}
	for _, path := range list {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) { test(t, dir, orttest.Golden(t, path)) })
	}
}

// Folders that tools/golden/layouts.py wrote, with PyTorch's features and gradients, are read without bundle.json.
func TestLayouts(t *testing.T) {
	onLayouts(t, func(t *testing.T, dir string, want tensor.Map) {
		b := openBundle(t, specOf(dir))
		if b.Batch() != 0 {
			t.Errorf("images still go through in batches of %d", b.Batch())
		}
		bothForms(t, specOf(dir), want)
		// CLIP-ONNX's export has no causal mask, so classes share no prefix.
		if recognised := b.Text.Layers == 2; recognised == (filepath.Base(dir) == "clip-onnx") {
			t.Errorf("recognised as CLIP's text tower: %t", recognised)
		}
		frozen := filepath.Join(t.TempDir(), "frozen")
		goldentest.NoError(t, exported.WriteRecorded(b, frozen, false))
		again := openBundle(t, frozen)
		sameAs(t, again, want)
		if err := again.Verify(); err != nil || again.Preprocess != b.Preprocess || again.LogitScale != b.LogitScale ||
			len(again.Notes) != len(b.Notes) {
			t.Errorf("frozen: %+v, scale %g, notes %q, %v", again.Preprocess, again.LogitScale, again.Notes, err)
		}
		var r bundle.Report
		b.Report(&r)
		for _, f := range r.Found {
			t.Logf("%s: %s", f.What, f.Value)
		}
		t.Logf("%+v, scale %.3f, notes %q", b.Preprocess, b.LogitScale, b.Notes)
	})
}

// A derived property has a single source, or the error names two.
func TestLayoutsThatAreNotClear(t *testing.T) {
	for _, c := range []struct {
		what, layout string
		change       func(dir string) error
		want         []string
	}{
		{"two layouts", "roboflow", copied("visual.onnx", "image.onnx", "textual.onnx", "text.onnx"),
			[]string{"two towers", "clip-as-service", "visual.onnx", "image.onnx"}},
		{"two files of a role", "lakera", copied("clip_image_model_vitb32.onnx", "clip_image_model_vitb16.onnx"),
			[]string{"two files could be the image tower", "vitb16.onnx", "vitb32.onnx"}},
		{"root and onnx/", "transformersjs", copied("onnx/vision_model.onnx", "vision_model.onnx"),
			[]string{"onnx/vision_model.onnx", "and"}},
		{"one tower", "usls", func(dir string) error { return os.Remove(dir + "/vit-b16-textual.onnx") },
			[]string{"vit-b16-visual.onnx is the image tower (usls)", "no text tower *-textual.onnx"}},
		{"two preprocessings", "immich", copied("config.json", "config.json", "visual/preprocess_cfg.json",
			"visual/preprocess_cfg.json", "", "visual/preprocessor_config.json"),
			[]string{"visual/preprocess_cfg.json", "visual/preprocessor_config.json", "write preprocess"}},
	} {
		dir := copyLayout(t, c.layout)
		goldentest.NoError(t, c.change(dir))
		_, err := bundle.Open(dir)
		goldentest.WantErrorOf(t, c.what, err, c.want...)
	}
}

// copyLayout returns a copy of a layout that a test may change.
func copyLayout(t *testing.T, name string) string {
	t.Helper()
	return filetest.Copy(t, filepath.Join(t.TempDir(), "tower"), filepath.Join(layouts, name))
}

// copied copies files within a folder; from and to alternate. An empty from stands for another preprocessing.
func copied(names ...string) func(dir string) error {
	return func(dir string) error {
		for i := 0; i < len(names); i += 2 {
			data := []byte(`{"size": {"height": 16, "width": 16}, "do_center_crop": false,
				"image_mean": [0.5, 0.5, 0.5]}`)
			var err error
			if names[i] != "" {
				if data, err = os.ReadFile(filepath.Join(dir, names[i])); err != nil {
					return err
				}
			}
			if err := os.WriteFile(filepath.Join(dir, names[i+1]), data, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// The requested variant is used: weights in half precision give almost the same features.
func TestVariants(t *testing.T) {
	orttest.RequireLibrary(t)
	dir := layouts + "/transformersjs"
	want := orttest.Golden(t, dir+"/golden.safetensors")
	b := openBundle(t, "folder="+dir+",variant=fp16,name=half")
	model, err := b.ImageModel()
	if err != nil || b.Name != "half" {
		t.Fatal(b.Name, err)
	}
	got := unitRows(orttest.Run(t, model, b.Dir, tensor.Map{bundle.PixelsInput: want["pixels"]})[bundle.ImageOutput])
	got.Axpy(-1, want["image"])
	if d := got.MaxAbs(); d > 5e-3 || d < 1e-6 {
		t.Errorf("off by %g", d)
	}
	_, err = bundle.Find("folder=" + dir + ",variant=q4")
	goldentest.WantErrorOf(t, "a variant that is not there", err, `no image tower of variant "q4"`,
		"vision_model_fp16.onnx")
	for _, spec := range []string{"image=a", "folder=a,image=b,text=c", "size=3", "variant=fp16"} {
		_, err := bundle.Find(spec)
		goldentest.WantErrorOf(t, spec, err, spec)
	}
}

// A text tower that was exported for one text is opened: a thousand classes pass through it together, and each class
// has the same features as alone.
func TestThousandClassesThroughAFixedBatch(t *testing.T) {
	orttest.RequireLibrary(t)
	running, plainOnly = true, true
	defer func() { running, plainOnly = false, false }()
	for _, layout := range []string{"immich", "usls"} {
		b := openBundle(t, layouts+"/"+layout)
		if b.Batch() != 0 {
			t.Fatalf("%s: images still go through in batches of %d", layout, b.Batch())
		}
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprint("a thing ", i))
		}
		g := graph.New()
		ctx := g.Input("ctx", graph.Float, graph.Static(4, 8))
		all := bundletest.Prompts(t, b, g, names, clip.Prompt{Ctx: ctx})
		one := bundletest.Prompts(t, b, g, names[997:998], clip.Prompt{Ctx: ctx})
		model := orttest.Model(t, graph.Output{Name: "all", Node: all[0].L2Normalize()}, graph.Output{Name: "one",
			Node: one[0].L2Normalize()})
		in := tensor.New(4, 8)
		for i := range in.Data {
			in.Data[i] = float32(i%5)/5 - 0.4
		}
		out := orttest.Run(t, model, b.Dir, tensor.Map{"ctx": in})
		orttest.CheckClose(t, layout, out["all"].Rows([]int{997}), out["one"])
	}
}

// A text tower that rounds activations is refused with the name of the operator and the files to use.
func TestRoundedTextTowerIsRefused(t *testing.T) {
	dir := copyLayout(t, "quantised")
	for _, variant := range []string{"q4", "int8"} {
		goldentest.NoError(t, os.Remove(dir+"/onnx/text_model_"+variant+".onnx"))
	}
	_, err := bundle.Open(dir)
	goldentest.WantErrorOf(t, "a text tower with dynamic quantisation", err, "onnx/text_model_quantized.onnx",
		"DynamicQuantizeLinear (node round)", "text_model.onnx")
}

// The rows of the tokens may be stored as 8-bit integers.
func TestTokensOfEightBits(t *testing.T) {
	orttest.RequireLibrary(t)
	dir := copyLayout(t, "quantised")
	filetest.Write(t, filepath.Join(dir, bundle.ManifestFile),
		`{"image": {"file": "onnx/vision_model_q4.onnx"}, "text": {"file": "onnx/text_model_int8.onnx"}}`)
	sameAs(t, openBundle(t, dir), orttest.Golden(t, dir+"/golden.safetensors"))
}

// The table in testdata/inspect.md equals the output of inspect for every folder here.
func TestTableOfInspect(t *testing.T) {
	mayRun(t)
	list, err := filepath.Glob(layouts + "/*")
	goldentest.NoError(t, err)
	page := string(filetest.Read(t, "testdata/inspect.md"))
	for _, dir := range append(list, "testdata/siglip", "testdata/chinese-clip", "testdata/roberta") {
		b := openBundle(t, specOf(dir))
		var r bundle.Report
		b.Report(&r)
		found := map[string]string{}
		for _, f := range r.Found {
			found[f.What] = f.Value
		}
		text, image, batch := "in full", "pixels", "open"
		if strings.Contains(found["text form"], "share the computation") {
			text = "common prefix shared"
		}
		if words := strings.Fields(found["image prompts"]); words[0] == "CLIP's" {
			image = "tokens, recognised"
		} else if words[0] == "prompt" {
			image = "tokens, blocks found"
		}
		for _, what := range []string{"images", "texts"} {
			if s := found["batch of "+what]; strings.Contains(s, "and opened") {
				batch = "fixed, opened"
			} else if s != "" {
				batch = "stays fixed"
			}
		}
		row := fmt.Sprintf("\n| `%s` | %s | %s | %s |\n", filepath.Base(dir), text, image, batch)
		if !strings.Contains(page, row) {
			t.Errorf("testdata/inspect.md has no row%s", row)
		}
	}
}
