package features_test

import (
	"context"
	"image"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/synthetic"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

func small(t *testing.T) *bundle.Bundle {
	t.Helper()
	b, err := converted.Convert("../../../models/bundle/converted/testdata/huggingface",
		filepath.Join(t.TempDir(), "small"), converted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func images(t *testing.T, n int) []data.Example {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i := range n {
		img, err := synthetic.Draw(synthetic.Classes()[i%5], synthetic.Domains()[i%3], uint64(i), 40)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filetest.PNG(t, filepath.Join(dir, string(rune('a'+i/26))+string(rune('a'+i%26))+".png"),
			img))
	}
	return files(t, paths...)
}

// files lists files as examples.
func files(t *testing.T, paths ...string) []data.Example {
	t.Helper()
	list, err := data.Files(paths)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// compute returns the features that are asked for, without a cache.
func compute(t *testing.T, x features.Extractor, r features.Request) *tensor.Tensor {
	t.Helper()
	out, err := x.Compute(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func extract(t *testing.T, x features.Extractor, b *bundle.Bundle, list []data.Example, views int) []*tensor.Tensor {
	t.Helper()
	rows, err := x.Rows(context.Background(), features.Request{Bundle: b, List: list, Views: views,
		What: method.ImageInput})
	if err != nil {
		t.Fatal(err)
	}
	var out []*tensor.Tensor
	for _, r := range rows {
		v, err := r.Read(tensor.Indices(len(list)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	return out
}

// The features are those of image.onnx for the preprocessed pixels, one image at a time, divided by their norm and in
// half precision; a filled cache, any number of workers and another seed give the same bits.
func TestSameWhateverTheCacheHolds(t *testing.T) {
	b, list := small(t), images(t, 37)
	cache := data.Cache{Dir: t.TempDir()}
	cold := extract(t, features.Extractor{Cache: cache, Workers: 1}, b, list, 1)[0]
	calls := 0
	warm := extract(t, features.Extractor{Cache: cache, Workers: 2, Seed: 7,
		Progress: func(string, int, int) { calls++ }}, b, list, 1)[0]
	two := extract(t, features.Extractor{Cache: data.Cache{Dir: t.TempDir()}, Workers: 2}, b, list, 1)[0]
	if calls > 0 {
		t.Errorf("%d images were computed again", calls)
	}
	for i, v := range cold.Data {
		if v != warm.Data[i] || v != two.Data[i] {
			t.Fatalf("element %d: %v cold, %v warm, %v with two workers", i, v, warm.Data[i], two.Data[i])
		}
	}
	model, err := b.ImageModel()
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.NewSession(model, ort.Options{WeightsDir: b.WeightsDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, i := range []int{0, 31, 32, 36} { // both sides of a batch's end
		img, err := synthetic.Draw(synthetic.Classes()[i%5], synthetic.Domains()[i%3], uint64(i), 40)
		if err != nil {
			t.Fatal(err)
		}
		n := b.Preprocess.Size
		out, err := s.Run(context.Background(), tensor.Map{bundle.PixelsInput: tensor.Of(b.Preprocess.Pixels(img), 1, 3,
			n, n)})
		if err != nil {
			t.Fatal(err)
		}
		want := features.L2Normalize(out[bundle.ImageOutput])
		for j, v := range want.Data {
			if math.Abs(float64(v-cold.Row(i).Data[j])) > 1e-3 { // half precision has 11 bits
				t.Errorf("image %d, element %d: %v, want %v", i, j, cold.Row(i).Data[j], v)
			}
		}
		if norm := cold.Row(i).Norm(); math.Abs(norm-1) > 1e-6 {
			t.Errorf("row %d has norm %v", i, norm)
		}
	}
}

// With Float the features are those of the encoder, bit for bit; with half precision, in the same folder, they differ.
func TestFloatIsExact(t *testing.T) {
	b, list, dir := small(t), images(t, 37), t.TempDir()
	x := features.Extractor{Cache: data.Cache{Dir: dir, Precision: data.Float}, Workers: 2}
	want := compute(t, x, features.Request{Bundle: b, List: list, What: method.ImageInput})
	half := extract(t, features.Extractor{Cache: data.Cache{Dir: dir}, Workers: 2}, b, list, 1)[0]
	cold, warm := extract(t, x, b, list, 1)[0], extract(t, x, b, list, 1)[0]
	differ := 0
	for i, v := range want.Data {
		if math.Float32bits(cold.Data[i]) != math.Float32bits(v) ||
			math.Float32bits(warm.Data[i]) != math.Float32bits(v) {
			t.Fatalf("element %d is %v, then %v, want %v", i, cold.Data[i], warm.Data[i], v)
		}
		if half.Data[i] != v {
			differ++
		}
	}
	if differ < len(want.Data)/2 {
		t.Errorf("%d of %d elements in half precision differ", differ, len(want.Data))
	}
}

// Augmented views differ from each other and from the plain one, and equal seeds give equal views.
func TestViews(t *testing.T) {
	b, list := small(t), images(t, 6)
	get := func(seed uint64) []*tensor.Tensor {
		return extract(t, features.Extractor{Cache: data.Cache{Dir: t.TempDir()}, Workers: 2, Seed: seed}, b, list, 3)
	}
	a, again, other := get(1), get(1), get(2)
	plain := extract(t, features.Extractor{Cache: data.Cache{Dir: t.TempDir()}}, b, list, 1)[0]
	if len(a) != 3 {
		t.Fatalf("%d views", len(a))
	}
	distance := func(x, y *tensor.Tensor) float64 { d := x.Clone(); d.Axpy(-1, y); return d.Norm() }
	for i := range a {
		if distance(a[i], again[i]) != 0 {
			t.Errorf("view %d is another one for the same seed", i)
		}
		if distance(a[i], plain) == 0 || distance(a[i], a[(i+1)%3]) == 0 || distance(a[i], other[i]) == 0 {
			t.Errorf("view %d is not its own", i)
		}
	}
}

// An image that is no image, or another one than when the set was opened or its hash was computed, is an error and not
// in the cache.
func TestBrokenImage(t *testing.T) {
	b := small(t)
	p := filetest.Write(t, filepath.Join(t.TempDir(), "broken.png"), "no image")
	list := files(t, p)
	if _, err := (features.Extractor{Cache: data.Cache{Dir: t.TempDir()}}).Rows(context.Background(), features.Request{
		Bundle: b, List: list, What: method.ImageInput}); err == nil {
		t.Error("a broken image has features")
	}
	list = images(t, 1)
	list[0].ContentHash = data.ContentHash{1}
	_, err := features.Extractor{Cache: data.Cache{Dir: t.TempDir()}}.Rows(context.Background(), features.Request{
		Bundle: b, List: list, What: method.ImageInput})
	goldentest.WantError(t, err, list[0].Path+": it changed after the run began")
	reads := 0
	next := func() image.Image { reads++; return image.NewGray(image.Rect(0, 0, reads, 1)) }
	for _, e := range []data.Example{{ID: "drawn", Load: func() (image.Image, error) { return next(), nil }},
		{ID: "kept", Bytes: func() ([]byte, error) { return os.ReadFile(filetest.PNG(t, p, next())) }}} {
		_, err := features.Extractor{Cache: data.Cache{Dir: t.TempDir()}}.Rows(t.Context(), features.Request{
			Bundle: b, List: []data.Example{e}, What: method.ImageInput})
		goldentest.WantError(t, err, e.ID+": it changed after the run began")
	}
}

// The features follow from the tokens after the last block: the class token with the last norm and the projection is
// the image's feature, the other tokens are those of the patches. The cache returns tokens as computed, and not as unit
// rows.
func TestTokensLeadToFeatures(t *testing.T) {
	b, list := small(t), images(t, 5)
	x := features.Extractor{Cache: data.Cache{Dir: t.TempDir(), Precision: data.Float}, Workers: 2}
	build := func(what string) *tensor.Tensor {
		return compute(t, x, features.Request{Bundle: b, List: list, What: what})
	}
	tokens, v := build(method.TokensInput), b.Vision.Width
	w, _ := converted.Weights(b)
	g := graph.New()
	rows := nn.LayerNorm(g.Input("tokens", graph.Float, graph.Static(tokens.Shape...)).Reshape(-1, v),
		w.Node(g, "visual.ln_post.weight", v), w.Node(g, "visual.ln_post.bias", v), 1e-5)
	rows = rows.MatMul(w.Node(g, "visual_projection.weight", b.Vision.EmbedDim, v).T()).L2Normalize()
	model, err := graph.Model(graph.Output{Name: "rows", Node: rows.Reshape(5, b.Tokens(), b.Vision.EmbedDim)})
	if err != nil {
		t.Fatal(err)
	}
	got := orttest.Run(t, model, b.WeightsDir(), tensor.Map{"tokens": tokens})["rows"]
	image, patches := build(method.ImageInput), build(method.PatchesInput)
	for i := range 5 {
		all := append(slices.Clone(image.Row(i).Data), patches.Row(i).Data...)
		orttest.CheckClose(t, "features", tensor.Of(got.Row(i).Data, len(all)), tensor.Of(all, len(all)))
	}
	cached, err := x.Rows(context.Background(), features.Request{Bundle: b, List: list, What: method.TokensInput})
	if err != nil {
		t.Fatal(err)
	}
	defer cached[0].Close()
	if again, err := cached[0].Read([]int{0, 1, 2, 3, 4}); err != nil || !slices.Equal(again.Data, tokens.Data) {
		t.Errorf("the cache gives other tokens: %v", err)
	}
}
