package converted_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/checkpoint"
	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// sources are the same small CLIP in three formats. Its numbers and all expected numbers are PyTorch's
// (tools/golden/bundle.py).
var sources = []struct {
	name string
	src  string
	o    converted.Options
}{
	{"openai", "testdata/openai.pt", converted.Options{Vocab: "testdata/merges.txt",
		Checkpoint: checkpoint.Options{TextHeads: 2, VisionHeads: 3}}},
	{"huggingface", "testdata/huggingface", converted.Options{}},
	{"openclip", "testdata/openclip", converted.Options{Vocab: "testdata/huggingface"}},
}

var (
	classes   = []string{"cat", "the thing", "sea lion", "red pandas and others"}
	sentences = []string{"a photo of a cat.", "the", "other things"}
)

func golden(t *testing.T) tensor.Map { return orttest.Golden(t, "testdata/golden.safetensors") }

func convert(t testing.TB, src string, o converted.Options) *bundle.Bundle {
	t.Helper()
	b, err := converted.Convert(src, filepath.Join(t.TempDir(), "small"), o)
	goldentest.NoError(t, err)
	return b
}

func TestSameAsPyTorchFromEveryFormat(t *testing.T) {
	orttest.RequireLibrary(t)
	want := golden(t)
	for _, c := range sources {
		t.Run(c.name, func(t *testing.T) {
			sameAs(t, convert(t, c.src, c.o), want, "end", "middle", "front", "sentences", "grad")
		})
	}
}

// The folder was saved by transformers 4.30, and the expected numbers are those of its CLIPModel
// (tools/golden/huggingface.py). Feed-forward layers have 13 and 37 units for widths of 8 and 12, the vocabulary has
// fewer tokens than the tower embeds, and config.json has the default eos_token_id, 2.
func TestTransformersFolder(t *testing.T) {
	orttest.RequireLibrary(t)
	b := convert(t, "testdata/transformers", converted.Options{})
	if b.Text.MLP != 13 || b.Vision.MLP != 37 {
		t.Errorf("feed-forward layers of %d and %d units, want 13 and 37", b.Text.MLP, b.Vision.MLP)
	}
	if notes := strings.Join(b.Notes, "; "); notes != "the checkpoint embeds 540 tokens, of which the vocabulary has "+
		"530" {
		t.Errorf("notes %q", notes)
	}
	want := orttest.Golden(t, "testdata/transformers.golden.safetensors")
	sameAs(t, b, want, "end", "sentences", "grad")
	sameTokens(t, b, want)
}

func sameAs(t *testing.T, b *bundle.Bundle, want tensor.Map, text ...string) {
	goldentest.NoError(t, b.Verify())
	if d := math.Abs(b.LogitScale/float64(want["logit_scale"].Data[0]) - 1); d > 1e-6 {
		t.Errorf("logit scale %g, want %g", b.LogitScale, want["logit_scale"].Data[0])
	}
	images(t, b, want)
	prompts(t, b, want, text)
	textFile(t, b, want)
}

func images(t *testing.T, b *bundle.Bundle, want tensor.Map) {
	model := bundletest.ImageModel(t, b)
	out := orttest.Run(t, model, b.WeightsDir(), tensor.Map{bundle.PixelsInput: want["pixels"]})
	orttest.CheckClose(t, "image", out[bundle.ImageOutput], want["image"])
	orttest.CheckClose(t, "patches", out[bundle.PatchesOutput], want["patches"])
}

func prompts(t *testing.T, b *bundle.Bundle, want tensor.Map, names []string) {
	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(want["ctx"].Shape...))
	f := bundletest.Prompts(t, b, g, classes, clip.Prompt{Ctx: ctx}, clip.Prompt{Ctx: ctx, Class: clip.Middle},
		clip.Prompt{Ctx: ctx, Class: clip.Front})
	whole := bundletest.Sentences(t, b, g, sentences...)
	d := orttest.Gradients(t, f[0].Mul(g.Const(want["cotangent"])).Sum(), ctx)
	model := orttest.Model(t, graph.Output{Name: "end", Node: f[0]}, graph.Output{Name: "middle", Node: f[1]},
		graph.Output{Name: "front", Node: f[2]}, graph.Output{Name: "sentences", Node: whole},
		graph.Output{Name: "grad", Node: d[0]})
	out := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"ctx": want["ctx"]})
	for _, name := range names {
		orttest.CheckClose(t, name, out[name], want[name])
	}
}

// textFile feeds text.onnx, opened by its path as in any other program, with the tokens that Python computed.
func textFile(t *testing.T, b *bundle.Bundle, want tensor.Map) {
	tok, err := b.Tokenizer()
	goldentest.NoError(t, err)
	emb := tensor.New(len(classes), b.Text.Context, b.Text.Width)
	eot := make([]int64, len(classes))
	for i, c := range classes {
		var ids []int
		for _, id := range want["tokens/"+c].Ints {
			ids = append(ids, int(id))
		}
		start := 0
		if tok.SOS() >= 0 {
			start, ids = 1, append([]int{tok.SOS()}, ids...)
		}
		n := want["ctx"].Shape[0]
		eot[i] = int64(n + len(ids) - 1)
		rows, err := b.Embed(append(ids, slices.Repeat([]int{tok.Pad()}, b.Text.Context-n-len(ids))...))
		goldentest.NoError(t, err)
		copy(emb.Row(i).Data, slices.Concat(rows[:start*b.Text.Width], want["ctx"].Data, rows[start*b.Text.Width:]))
	}
	s, err := ort.Open(filepath.Join(b.WeightsDir(), converted.TextFile), ort.Options{})
	goldentest.NoError(t, err)
	defer s.Close()
	in := tensor.Map{bundle.EmbeddingsInput: emb}
	if b.Text.Pool == "" || b.Text.Masked { // other poolings do not use the end of a text
		in[bundle.EOTInput] = tensor.OfInts(eot, len(eot))
	}
	out, err := s.Run(context.Background(), in)
	goldentest.NoError(t, err)
	orttest.CheckClose(t, "text.onnx", out[bundle.TextOutput], want["end"])
}

// Half-precision weights in the archive and in OpenCLIP's file and float32 weights in Hugging Face's are the same
// numbers.
func TestSameFeaturesFromEveryFormat(t *testing.T) {
	orttest.RequireLibrary(t)
	in := tensor.Map{bundle.PixelsInput: golden(t)["pixels"]}
	var first tensor.Map
	for _, c := range sources {
		b := convert(t, c.src, c.o)
		model := bundletest.ImageModel(t, b)
		out := orttest.Run(t, model, b.WeightsDir(), in)
		if first == nil {
			first = out
		}
		for name, x := range out {
			for i, v := range x.Data {
				// Fused and separate query, key and value products may have another order of sums.
				if d := math.Abs(float64(v - first[name].Data[i])); d > 1e-6*first[name].MaxAbs() {
					t.Fatalf("%s: %s[%d] differs by %g from that of %s", c.name, name, i, d, sources[0].name)
				}
			}
		}
	}
}

func TestClassTokens(t *testing.T) {
	sameTokens(t, convert(t, "testdata/huggingface", converted.Options{}), golden(t))
}

func sameTokens(t *testing.T, b *bundle.Bundle, want tensor.Map) {
	ids, err := b.ClassTokens(classes)
	goldentest.NoError(t, err)
	for i, c := range classes {
		if len(ids[i]) != want["tokens/"+c].Len() {
			t.Fatalf("%s: tokens %v, want %v", c, ids[i], want["tokens/"+c].Ints)
		}
		for j, id := range ids[i] {
			if int64(id) != want["tokens/"+c].Ints[j] {
				t.Fatalf("%s: tokens %v, want %v", c, ids[i], want["tokens/"+c].Ints)
			}
		}
	}
}

func TestClassTooLong(t *testing.T) {
	b := convert(t, "testdata/huggingface", converted.Options{})
	g := graph.New()
	ctx := g.Input("ctx", graph.Float, graph.Static(16, b.Text.Width))
	long := strings.Repeat("q", 14) // 14 tokens, ".", EOT, SOS and 16 of the prompt: 33 of 32
	_, err := b.Prompts(g, []string{"cat", long}, []clip.Prompt{{Ctx: ctx}})
	for _, part := range []string{long, "16", "33", "32"} {
		goldentest.WantError(t, err, part)
	}
	_, err = b.Sentences(graph.New(), []string{strings.Repeat("q", 31)})
	goldentest.WantError(t, err, "33 tokens")
	g = graph.New()
	ctx = g.Input("ctx", graph.Float, graph.Static(16, b.Text.Width))
	if _, err := b.Prompts(g, []string{"cat", long[:13]}, []clip.Prompt{{Ctx: ctx}}); err != nil {
		t.Errorf("a class that just fits: %v", err)
	}
}

// A Hugging Face folder is linked, not copied: the bundle's file is the checkpoint's own, found through the links of
// the Hub's cache.
func TestLinksThroughTheHubCache(t *testing.T) {
	orttest.RequireLibrary(t)
	root := t.TempDir()
	blobs, snap := filetest.Folder(t, root, "blobs"), filetest.Folder(t, root, "snapshots", "0123")
	list, err := os.ReadDir("testdata/huggingface")
	goldentest.NoError(t, err)
	for i, e := range list {
		data := filetest.Read(t, filepath.Join("testdata/huggingface", e.Name()))
		blob := strings.Repeat("ab", 8) + string(rune('0'+i))
		filetest.Write(t, filepath.Join(blobs, blob), data)
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snap, e.Name())); err != nil {
			t.Skip(err)
		}
	}
	out, left := filepath.Join(root, "bundle"), int64(-1) // bytes of weights
	progress := func(done, total int64) { left = total - done }
	b, err := converted.Convert(snap, out, converted.Options{Progress: progress})
	if err != nil || left != 0 {
		t.Fatalf("%v, %d bytes left", err, left)
	}
	here, err := os.Lstat(filepath.Join(out, "model.safetensors"))
	there, other := os.Stat(filepath.Join(snap, "model.safetensors"))
	goldentest.NoError(t, errors.Join(err, other))
	files, _ := filepath.Glob(filepath.Join(out, "*.safetensors"))
	if !here.Mode().IsRegular() || !os.SameFile(here, there) || len(files) != 1 {
		t.Errorf("%v is not a hard link of %v, or not the only file of weights in %v", here, there, files)
	}
	images(t, b, golden(t))
}
