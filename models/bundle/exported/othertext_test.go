package exported_test

import (
	"math"
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
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Exports of models with other text towers than CLIP's give the outputs of the libraries for the original checkpoints
// (tools/golden/siglip.py, inside.py): a SigLIP in the layout of transformers.js, whose ids are padded and read at the
// last position; a Chinese-CLIP for one text at a time, read at the first token, with its weights in files beside the
// graphs; and an OpenCLIP with a RoBERTa, whose tokens are averaged.
func TestOtherTextTowers(t *testing.T) {
	mayRun(t)
	for dir, want := range map[string]struct {
		golden            string
		context, pad, sos int
		names             []string
	}{
		"siglip":       {"siglip", 16, 1, -1, []string{"end", "sentences", "grad", "image"}},
		"chinese-clip": {"chinese", 40, 2, 0, []string{"end", "sentences", "grad", "image"}},
		"roberta":      {"openclip-roberta", 40, 1, 0, []string{"end", "grad", "image"}},
	} {
		golden := orttest.Golden(t, "../converted/testdata/"+want.golden+".golden.safetensors")
		b := openBundle(t, "testdata/"+dir)
		if tok, err := b.Tokenizer(); err != nil || b.Text.Context != want.context || b.Text.Pad != want.pad ||
			tok.SOS() != want.sos || b.Batch() != 0 {
			t.Errorf("%s: %+v, batch %d, %v", dir, b.Text, b.Batch(), err)
		}
		g := graph.New()
		ctx := g.Input("ctx", graph.Float, graph.Static(golden["ctx"].Shape...))
		f := bundletest.Prompts(t, b, g, []string{"cat", "the thing", "sea lion", "red pandas and others"},
			clip.Prompt{Ctx: ctx})
		whole := bundletest.Sentences(t, b, g, "a photo of a cat.", "the", "other things")
		d := orttest.Gradients(t, f[0].Mul(g.Const(golden["cotangent"])).Sum(), ctx)
		model := orttest.Model(t, graph.Output{Name: "end", Node: f[0]}, graph.Output{Name: "sentences", Node: whole},
			graph.Output{Name: "grad", Node: d[0]})
		got := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"ctx": golden["ctx"]})
		model = bundletest.ImageModel(t, b)
		images := orttest.Run(t, model, b.WeightsDir(), tensor.Map{bundle.PixelsInput: golden["pixels"]})
		got["image"] = images[bundle.ImageOutput]
		for _, name := range want.names {
			orttest.CheckClose(t, dir+" "+name, got[name], golden[name])
		}
	}
	if p := openBundle(t, "testdata/siglip").Preprocess; p.Crop || p.Mean != [3]float32{.5, .5, .5} {
		t.Errorf("%+v", p)
	}
}

// The factor of a SigLIP's similarities and their bias come from the specification, from an export of the whole model
// beside the towers, or from a checkpoint; otherwise they are unknown. The numbers are those that
// tools/golden/siglip.py sets: exp(4.7), and -12.9.
func TestScaleOfASigLIP(t *testing.T) {
	for _, c := range []struct{ what, from, to, more, found string }{
		{what: "nothing"},
		{what: "the specification", more: ",logit_scale=109.94717,logit_bias=-12.9"},
		{"a whole model", "testdata/siglip.whole.onnx", "onnx/model.onnx", "", "the similarities of onnx/model.onnx"},
		{"one of another variant", "testdata/siglip.whole.onnx", "onnx/model_q4.onnx", "", "of onnx/model_q4.onnx"},
		{"a checkpoint", "../converted/testdata/siglip/model.safetensors", "model.safetensors", "",
			"from the checkpoint model.safetensors"},
	} {
		dir := filetest.Copy(t, filepath.Join(t.TempDir(), "siglip"), "testdata/siglip")
		if c.from != "" {
			filetest.Write(t, filepath.Join(dir, c.to), filetest.Read(t, c.from))
			filetest.Write(t, filepath.Join(dir, "config.json"), `{"model_type": "siglip"}`)
		}
		b := openBundle(t, "folder="+dir+c.more)
		if c.what == "nothing" {
			if !b.AssumedScale || b.LogitScale != 100 || b.LogitBias != 0 {
				t.Errorf("%g %g, assumed %t", b.LogitScale, b.LogitBias, b.AssumedScale)
			}
			continue
		}
		if b.AssumedScale || math.Abs(b.LogitScale/math.Exp(4.7)-1) > 1e-5 || math.Abs(b.LogitBias+12.9) > 1e-5 {
			t.Errorf("%s: %g %g, assumed %t", c.what, b.LogitScale, b.LogitBias, b.AssumedScale)
		}
		var r bundle.Report
		b.Report(&r)
		said := slices.ContainsFunc(r.Found, func(f bundle.Finding) bool {
			return f.What == "logit bias" && strings.Contains(f.Value, c.found)
		})
		if c.found != "" && !said {
			t.Errorf("%s: %+v", c.what, r.Found)
		}
	}
}

// A tower may be named by its file: here a quantised image tower and a text tower that is not quantised.
func TestFilesOfTwoTowers(t *testing.T) {
	b := openBundle(t, "image="+layouts+"/quantised/onnx/vision_model_q4.onnx,text="+layouts+
		"/transformersjs/onnx/text_model.onnx,name=two")
	if b.Name != "two" || b.TokenRows != 530 || b.Vision.Image != 16 {
		t.Errorf("%+v", b)
	}
	_, err := bundle.Find("image=" + layouts + "/quantised/onnx/vision_model_q4.onnx,text=" + layouts + "/absent.onnx")
	goldentest.WantErrorOf(t, "no such file", err, "absent.onnx is missing")
}
