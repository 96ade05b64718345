package converted_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/checkpoint"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// PROMPTFED_TEST_LIBRARIES names a folder of checkpoints that other libraries wrote, each NAME or NAME.pt with
// NAME.golden.safetensors, which holds the outputs of those libraries: image of pixels, text of three sentences.
// tools/golden/libraries.py makes it. bpe_simple_vocab_16e6.txt.gz comes from PROMPTFED_TEST_VOCAB if a checkpoint has
// no vocabulary.
func TestLibraries(t *testing.T) {
	dir := os.Getenv("PROMPTFED_TEST_LIBRARIES")
	if dir == "" {
		t.Skip("PROMPTFED_TEST_LIBRARIES is not set")
	}
	goldens, err := filepath.Glob(filepath.Join(dir, "*.golden.safetensors"))
	if err != nil || len(goldens) == 0 {
		t.Fatalf("%s holds no golden files (%v)", dir, err)
	}
	for _, path := range goldens {
		name := strings.TrimSuffix(filepath.Base(path), ".golden.safetensors")
		t.Run(name, func(t *testing.T) {
			want, _, err := safetensors.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			src := filepath.Join(dir, name)
			if _, err := os.Stat(src); err != nil {
				src += ".pt"
			}
			o := converted.Options{}
			if vocab, _ := filepath.Glob(filepath.Join(src, "vocab.json")); len(vocab) == 0 {
				o.Vocab = os.Getenv("PROMPTFED_TEST_VOCAB")
			}
			switch name { // bare files state neither activation nor heads
			case "openai_sd":
				o.Checkpoint = checkpoint.Options{Activation: checkpoint.QuickGELU}
			case "oc_quick_train":
				o.Checkpoint = checkpoint.Options{Activation: checkpoint.QuickGELU, TextHeads: 2}
			case "oc_train":
				o.Checkpoint = checkpoint.Options{TextHeads: 2}
			}
			b := convert(t, src, o)
			t.Logf("%s, logit scale %.4g, notes %q", b.Architecture, b.LogitScale, b.Notes)
			model := bundletest.ImageModel(t, b)
			orttest.CheckClose(t, "image", orttest.Run(t, model, b.WeightsDir(),
				tensor.Map{bundle.PixelsInput: want["pixels"]})[bundle.ImageOutput], want["image"])
			g := graph.New()
			n := bundletest.Sentences(t, b, g, "a photo of a cat.", "the quick brown fox, jumping", "dog")
			one := g.Input("one", graph.Float, graph.Static(1)) // package ort runs no graph without inputs
			if model, err = graph.Model(graph.Output{Name: "text", Node: n.Mul(one)}); err != nil {
				t.Fatal(err)
			}
			orttest.CheckClose(t, "text", orttest.Run(t, model, b.WeightsDir(),
				tensor.Map{"one": tensor.Of([]float32{1}, 1)})["text"],
				want["text"])
		})
	}
}
