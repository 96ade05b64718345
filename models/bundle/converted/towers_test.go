package converted_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/models/preprocess"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

const vocabularies = "../../tokenizer/testdata/files/"

// otherTowers are checkpoints whose towers are not OpenAI's; tools/golden/siglip.py writes them with the outputs of
// transformers and OpenCLIP.
var otherTowers = []struct {
	name string
	o    converted.Options
	want []string // tensors of the golden file
}{
	{"siglip", converted.Options{}, []string{"end", "grad", "sentences"}},
	{"chinese", converted.Options{}, []string{"end", "grad", "sentences"}},
	{"openclip-avg", converted.Options{Vocab: "testdata/merges.txt"}, []string{"end", "grad"}},
	{"openclip-last", converted.Options{Vocab: "testdata/merges.txt"}, []string{"end", "grad"}},
}

func TestOtherTowers(t *testing.T) {
	orttest.RequireLibrary(t)
	for _, c := range otherTowers {
		t.Run(c.name, func(t *testing.T) {
			want, _, err := safetensors.ReadFile("testdata/" + c.name + ".golden.safetensors")
			goldentest.NoError(t, err)
			b := convert(t, "testdata/"+c.name, c.o)
			if bias := want["logit_bias"]; bias != nil && math.Abs(b.LogitBias-float64(bias.Data[0])) > 1e-6 ||
				math.Abs(b.LogitScale/float64(want["logit_scale"].Data[0])-1) > 1e-6 {
				t.Errorf("scale %g and bias %g", b.LogitScale, b.LogitBias)
			}
			sameTokens(t, b, want)
			model := bundletest.ImageModel(t, b)
			out := orttest.Run(t, model, b.WeightsDir(), tensor.Map{bundle.PixelsInput: want["pixels"]})
			orttest.CheckClose(t, "image", out[bundle.ImageOutput], want["image"])
			prompts(t, b, want, c.want)
			textFile(t, b, want)
			if p := b.Preprocess; p.Crop || p.Longest != (c.name == "openclip-avg" || c.name == "openclip-last") {
				t.Errorf("preprocessing %+v", p)
			}
		})
	}
}

// Without its file, a SigLIP has the preprocessing of SigLIP, and a CLIP that of transformers, with a note.
func TestPreprocessingIsAssumed(t *testing.T) {
	for name, want := range map[string]preprocess.Preprocess{
		"siglip": preprocess.SigLIP(14),
		"huggingface": {Size: 16, Resize: preprocess.Bicubic, Crop: true, Floor: true, Mean: preprocess.CLIP(1).Mean,
			Std: preprocess.CLIP(1).Std},
	} {
		dir := filetest.Copy(t, t.TempDir(), "testdata/"+name)
		goldentest.NoError(t, os.Remove(filepath.Join(dir, "preprocessor_config.json")))
		b := convert(t, dir, converted.Options{})
		if b.Preprocess != want || !strings.Contains(strings.Join(b.Notes, "; "), "assumed: "+want.String()) {
			t.Errorf("%v, want %v; notes %q", b.Preprocess, want, b.Notes)
		}
	}
}

// Patch features of an attention pooling equal the features of an image that consists of this patch alone: the query
// has one key, so the feature of an image with equal patches is that of each patch.
func TestPatchesOfAttentionPooling(t *testing.T) {
	orttest.RequireLibrary(t)
	b := convert(t, "testdata/siglip", converted.Options{})
	w, ok := converted.Weights(b)
	if !ok {
		t.Fatal("no weights")
	}
	v := b.Vision
	v.Image = v.Patch // one patch
	g := graph.New()
	one := g.Input("pixels", graph.Float, graph.Static(3, 3, v.Patch, v.Patch))
	image, patches := clip.Vision{VisionArch: v}.Features(g, firstPosition{w}, one)
	model := orttest.Model(t, graph.Output{Name: "image", Node: image}, graph.Output{Name: "patches",
		Node: patches.Squeeze(1)})
	x := tensor.New(3, 3, v.Patch, v.Patch)
	for i := range x.Data {
		x.Data[i] = float32(i%7) - 3
	}
	out := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"pixels": x})
	orttest.CheckClose(t, "patches", out["patches"], out["image"])
}

// firstPosition returns the positions of an image of one patch.
type firstPosition struct{ clip.Weights }

func (w firstPosition) Node(g *graph.Graph, name string, shape ...int) graph.Node {
	if name == "visual.positional_embedding" {
		return w.Weights.Node(g, name, 49, shape[1]).Slice(0, 0, 1)
	}
	return w.Weights.Node(g, name, shape...)
}

// The ids are SiglipTokenizer's, except that it adds a second space to a text that begins with one.
func TestSigLIPTokens(t *testing.T) {
	var golden map[string][]int
	goldentest.ReadJSON(t, "testdata/siglip.tokens.json", &golden)
	b := convert(t, "testdata/siglip", converted.Options{})
	tok, err := b.Tokenizer()
	goldentest.NoError(t, err)
	for text, want := range golden {
		if strings.HasPrefix(text, " ") {
			text, want = strings.TrimSpace(text), want[1:]
		}
		got, err := tok.Encode(text)
		if got = append(got, tok.EOT()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	if tok.Pad() != 1 || tok.SOS() != -1 || b.Text.Pad != 1 {
		t.Errorf("pad %d, start %d", tok.Pad(), tok.SOS())
	}
}

// Cached embeddings of a list of classes are found by the exact names, with any characters.
func TestClassesAreToldApart(t *testing.T) {
	b := convert(t, "testdata/siglip", converted.Options{})
	for _, list := range [][]string{{"a\x00b"}, {"a", "b"}, {"a b"}, {"a\" \"b"}, {"a", "b", ""}} {
		g := graph.New()
		ctx := g.Input("ctx", graph.Float, graph.Static(3, b.Text.Width))
		out, err := b.Prompts(g, list, []clip.Prompt{{Ctx: ctx}})
		if err != nil {
			t.Fatalf("%q: %v", list, err)
		}
		if n := out[0].Dim(0); n != len(list) {
			t.Errorf("%q: features of %d classes", list, n)
		}
	}
}

// A tower without causal mask returns errors for unsupported prompts.
func TestBidirectionalLimits(t *testing.T) {
	b := convert(t, "testdata/siglip", converted.Options{})
	for name, build := range map[string]func(ctx graph.Node) clip.Prompt{
		"deep":  func(ctx graph.Node) clip.Prompt { return clip.Prompt{Ctx: ctx, Deep: []graph.Node{ctx}} },
		"after": func(ctx graph.Node) clip.Prompt { return clip.Prompt{Ctx: ctx, ReadOffset: 1} },
		"image": func(ctx graph.Node) clip.Prompt { return clip.Prompt{Ctx: ctx.Reshape(1, 3, b.Text.Width)} },
	} {
		g := graph.New()
		p := build(g.Input("ctx", graph.Float, graph.Static(3, b.Text.Width)))
		_, err := b.Prompts(g, classes, []clip.Prompt{p})
		goldentest.WantErrorOf(t, name, err, "causal")
	}
	if !slices.ContainsFunc(b.Notes, func(n string) bool { return strings.Contains(n, "no causal mask") }) {
		t.Errorf("notes %q", b.Notes)
	}
}
