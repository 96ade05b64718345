package exported_test

import (
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// A SigLIP as transformers.js has it: ids filled up to 16 positions, no mask, features at the last position,
// SentencePiece's vocabulary. The expected numbers are transformers' (tools/golden/siglip.py).
func TestSigLIP(t *testing.T) {
	orttest.Need(t)
	want := orttest.Golden(t, "../converted/testdata/siglip.golden.safetensors")
	b := openBundle(t, "testdata/siglip")
	if b.Text.Context != 16 || b.Text.Pad != 1 || b.Preprocess.Crop || b.Preprocess.Mean != [3]float32{.5, .5, .5} {
		t.Errorf("%+v %+v", b.Text, b.Preprocess)
	}
	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(want["ctx"].Shape...))
	f, err := b.Prompts(g, []string{"cat", "the thing", "sea lion", "red pandas and others"}, []clip.Prompt{{Ctx: ctx}})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := b.Sentences(g, []string{"a photo of a cat.", "the", "other things"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := grad.Of(f[0].Mul(g.Const(want["cotangent"])).Sum(), ctx)
	if err != nil {
		t.Fatal(err)
	}
	model, err := graph.Model(graph.Output{Name: "end", Node: f[0]}, graph.Output{Name: "sentences", Node: whole},
		graph.Output{Name: "grad", Node: d[0]})
	if err != nil {
		t.Fatal(err)
	}
	got := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"ctx": want["ctx"]})
	if model, err = b.ImageModel(); err != nil {
		t.Fatal(err)
	}
	got["image"] = orttest.Run(t, model, b.WeightsDir(), tensor.Map{bundle.PixelsInput: want["pixels"]})[bundle.ImageOutput]
	for _, name := range []string{"end", "sentences", "grad", "image"} {
		orttest.Near(t, name, got[name], want[name])
	}
}
