package exported_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/tensor"
)

// If a specification or bundle.json names wrong files, the error says so.
func TestWrongFiles(t *testing.T) {
	const image, text = "testdata/layouts/fastembed/image", "testdata/layouts/fastembed/text"
	const swapped = `swap both towers, or name their files, with image=IMAGE.onnx,text=TEXT.onnx or as "image": {"file"`
	for _, c := range []struct {
		spec  string
		parts []string
	}{
		{"image=" + text + ",text=" + image, []string{
			"text/model.onnx: it is not the image tower, because it takes input", swapped}},
		{"image=" + text + ",text=" + text, []string{"it is not the image tower", swapped}},
		{"image=" + image + ",text=" + image, []string{"it is not the text tower, because it takes pixel_values",
			swapped}},
		{image, []string{"model.onnx: it is not the text tower, because it takes pixel_values", swapped}},
		{"image=" + image + "s,text=" + text, []string{"the image tower: ", "images", "no such file"}},
		{"image=" + image + "/preprocessor_config.json,text=" + text, []string{"neither a folder nor an .onnx file"}},
		{"image=" + t.TempDir() + ",text=" + text, []string{" holds no .onnx file: name the folder of the image"}},
		{"image=testdata,text=" + text, []string{"two files could be the image tower", ", with image=IMAGE.onnx,"}},
	} {
		_, err := bundle.Find(c.spec)
		goldentest.WantErrorOf(t, c.spec, err, c.parts...)
	}
	for manifest, parts := range map[string][]string{
		`{"image": {"file": "text.onnx"}, "text": {"file": "image.onnx"}}`: {
			"text.onnx: it is not the image tower, because it takes input_ids int64", swapped},
		`{"model": "text.onnx"}`:  {"text.onnx: it is not the image tower", swapped},
		`{"model": "image.onnx"}`: {"image.onnx: it is not the text tower", swapped},
		`{"variant": "fp16"}`:     {`no image tower of variant "fp16": there is image.onnx; choose`},
		`{"name": "a/b"}`:         {`bundle.json: name "a/b"`},
		`{"text": {"ids": "pixel_values"}}`: {
			`text.ids "pixel_values" in bundle.json is none of its inputs input_ids`},
	} {
		_, err := bundle.Open(copyTower(t, "hf-half", manifest))
		goldentest.WantErrorOf(t, manifest, err, parts...)
	}
}

// The error for a folder that contains a folder for each tower, or for a cache of downloads, shows how to name both,
// with their paths.
func TestFolderForEachTower(t *testing.T) {
	dir := t.TempDir()
	put := func(name string) string {
		t.Helper()
		return filepath.Dir(filetest.Write(t, filepath.Join(dir, filepath.FromSlash(name), "model.onnx"), ""))
	}
	refused := func(name string, parts ...string) {
		t.Helper()
		path := filepath.Join(dir, name)
		for _, p := range []string{path, path + string(filepath.Separator)} {
			_, err := bundle.Open(p)
			goldentest.WantErrorOf(t, name, err, parts...)
			_, err = bundle.Inspect(p)
			goldentest.WantErrorOf(t, name, err, parts...)
		}
	}
	image, text := put("plain/image"), put("plain/text")
	put("plain/other")
	refused("plain", "holds a folder for each tower: name both in its place, image="+image+",text="+text)
	image = put("cache[1]/models--Qdrant--clip-ViT-B-32-vision/snapshots/1a2b")
	text = put("cache[1]/models--Qdrant--clip-ViT-B-32-text/snapshots/3c4d")
	refused("cache[1]", "name both in its place, image="+image+",text="+text)
	for _, name := range []string{"half/image", "apart/a-image", "apart/b-text", "words/imagery", "words/textile"} {
		put(name)
	}
	for _, name := range []string{"half", "apart", "words"} {
		_, err := bundle.Open(filepath.Join(dir, name))
		goldentest.WantErrorOf(t, name, err, "is not a bundle")
	}
	for _, e := range bundle.List(dir) {
		if e.Dir == filepath.Join(dir, "plain") {
			t.Errorf("%s is listed as a bundle", e.Dir)
		}
	}
	_, err := bundle.Find("plain", dir)
	goldentest.WantErrorOf(t, "by name", err, "name both in its place")
}

// The errors for graphs that are not towers name their inputs or outputs, and those of a tower. Half precision and
// 32-bit ids are accepted.
func TestWrongGraphs(t *testing.T) {
	const pixels = "image tower must take pixels [batch,3,size,size] or [batch,size,size,3], floating-point or uint8"
	const ids = "the text tower must take token ids [texts,length], int64 or int32, or floating-point embeddings"
	batch, n := graph.Sym("B"), graph.StaticDim
	in := func(g *graph.Graph, name string, dtype graph.DType, s ...graph.Dim) graph.Node {
		return g.Input(name, dtype, s)
	}
	ones := func(g *graph.Graph, shape ...int) graph.Node { return g.Const(tensor.New(shape...)) }
	image := func(dtype graph.DType, s ...graph.Dim) func(g *graph.Graph) graph.Node {
		return func(g *graph.Graph) graph.Node {
			x := in(g, "x", dtype, s...)
			if dtype != graph.Float {
				x = x.Cast(graph.Float)
			}
			for len(s) > 4 || len(s) == 4 && x.Rank() > 4 {
				x, s = x.Mean(1), s[1:]
			}
			if x.Rank() == 3 {
				x = x.Unsqueeze(0)
			}
			return x.Mean(2, 3).MatMul(ones(g, x.Dim(1), 6))
		}
	}
	look := func(dtype graph.DType, rows int, s ...graph.Dim) func(g *graph.Graph) graph.Node {
		return func(g *graph.Graph) graph.Node {
			x := in(g, "x", dtype, s...)
			if dtype != graph.Int32 {
				x = x.Cast(graph.Int64)
			}
			if x.Rank() == 1 {
				x = x.Unsqueeze(0)
			}
			return ones(g, rows, 8).Gather(0, x).Sum(1).MatMul(ones(g, 8, 6))
		}
	}
	for _, c := range []struct {
		what, file string
		build      func(g *graph.Graph) graph.Node
		parts      []string // none if it is a tower
	}{
		{"half", "image.onnx", image(graph.Half, batch, n(3), n(16), n(16)), nil},
		{"ids of 32 bits", "text.onnx", look(graph.Int32, 530, batch, n(32)), nil},
		{"two images", "image.onnx", func(g *graph.Graph) graph.Node {
			s := graph.Shape{batch, n(3), n(16), n(16)}
			return g.Input("x", graph.Float, s).Add(g.Input("y", graph.Float, s)).Mean(2, 3).MatMul(ones(g, 3, 6))
		}, []string{"depends on x float[B,3,16,16], y float[B,3,16,16]", pixels, "and nothing else: export it so"}},
		{"1 channel", "image.onnx", image(graph.Float, batch, n(1), n(16), n(16)), []string{
			"x float[B,1,16,16]", pixels}},
		{"4 channels", "image.onnx", image(graph.Float, batch, n(4), n(16), n(16)), []string{
			"x float[B,4,16,16]", pixels}},
		{"no batch", "image.onnx", image(graph.Float, n(3), n(16), n(16)), []string{
			"it takes x float[3,16,16]", pixels}},
		{"frames", "image.onnx", image(graph.Float, batch, n(1), n(3), n(16), n(16)), []string{"x float[B,1,3,16,16]",
			pixels}},
		{"32-bit pixels", "image.onnx", image(graph.Int32, batch, n(3), n(16), n(16)), []string{"x int32[B,3,16,16]",
			pixels}},
		{"not square", "image.onnx", image(graph.Float, batch, n(3), n(16), n(32)), []string{
			"it takes images of 16 x 32; only squares are supported: export it for one"}},
		{"no features", "image.onnx", func(g *graph.Graph) graph.Node {
			return in(g, "x", graph.Float, batch, n(3), n(16), n(16)).Mean(2).Transpose(0, 2, 1).MatMul(ones(g, 3, 6))
		}, []string{"no output holds features, which are floating-point [batch,size]; it has features float[B,16,6]",
			"one row for each image"}},
		{"whole numbers", "image.onnx", func(g *graph.Graph) graph.Node {
			return in(g, "x", graph.Float, batch, n(3), n(16), n(16)).Mean(2, 3).Cast(graph.Int64)
		}, []string{"no output holds features, which are floating-point", "it has features int64[B,3]"}},
		{"all images in one", "image.onnx", func(g *graph.Graph) graph.Node {
			return in(g, "x", graph.Float, batch, n(3), n(16), n(16)).Mean(0, 2).Transpose(1, 0).MatMul(ones(g, 3, 6))
		}, []string{"has shape [16,6] for two images", "or export one row for each image"}},
		{"float ids", "text.onnx", look(graph.Float, 530, batch, n(32)), []string{"it takes x float[B,32]", ids}},
		{"16-bit ids", "text.onnx", look(onnx.TensorProto_INT16, 530, batch, n(32)), []string{"it takes x int16[B,32]",
			ids}},
		{"ids of one text", "text.onnx", look(graph.Int64, 530, n(32)), []string{"it takes x int64[32]", ids}},
		{"two ids", "text.onnx", func(g *graph.Graph) graph.Node {
			x := in(g, "x", graph.Int64, batch, n(32)).Add(in(g, "types", graph.Int64, batch, n(32)))
			return ones(g, 530, 8).Gather(0, x).Sum(1).MatMul(ones(g, 8, 6))
		}, []string{"the role of its input types int64[B,32] is not clear", "or export the tower without it"}},
		{"quantised rows", "text.onnx", func(g *graph.Graph) graph.Node {
			rows := g.Const(tensor.OfInts(make([]int64, 530*8), 530, 8))
			x := rows.Gather(0, in(g, "x", graph.Int64, batch, n(32))).Cast(graph.Float)
			return x.Sum(1).MatMul(ones(g, 8, 6))
		}, []string{`the token embedding is stored as "I64", as a quantised one is`}},
		{"a fixed batch behind an axis of 0", "text.onnx", func(g *graph.Graph) graph.Node {
			x := ones(g, 530, 8).Gather(0, in(g, "x", graph.Int64, n(2), n(32))).Transpose(1, 0, 2)
			return graph.Concat(0, x.Slice(0, 0, 0).Reshape(0, 2, 8), x).Sum(0).MatMul(ones(g, 8, 6))
		}, nil},
		{"few rows", "text.onnx", look(graph.Int32, 100, batch, n(32)), []string{
			"the tokenizer has 530 tokens, the token embedding of text.onnx 100 rows", `name it as "tokenizer"`}},
		{"open length", "text.onnx", look(graph.Int32, 530, batch, graph.Sym("L")), []string{
			`its graph does not determine the context length: write "context_length" in bundle.json`}},
	} {
		dir := smallTowers(t, graph.Static(2, 3, 16, 16), graph.Static(2, 32, 8))
		g := graph.New()
		putTower(t, dir, c.file, c.build(g))
		switch err := useTower(t, dir); {
		case len(c.parts) > 0:
			goldentest.WantErrorOf(t, c.what, err, append([]string{c.file}, c.parts...)...)
		case err != nil:
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// A size of 0 is not symbolic; a name, no value and -1 are. Other negative sizes are invalid.
func TestSizesThatAreNotOpen(t *testing.T) {
	number := func(n int64) func(*onnx.TensorShapeProto_Dimension) {
		return func(d *onnx.TensorShapeProto_Dimension) {
			d.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: n}
		}
	}
	name := func(d *onnx.TensorShapeProto_Dimension) {
		d.Value = &onnx.TensorShapeProto_Dimension_DimParam{DimParam: "B"}
	}
	for _, c := range []struct {
		file string
		axis int
		set  func(*onnx.TensorShapeProto_Dimension)
		want string
	}{
		{"image.onnx", 0, name, ""}, {"text.onnx", 0, name, ""},
		{"image.onnx", 0, func(d *onnx.TensorShapeProto_Dimension) { d.Value = nil }, ""},
		{"image.onnx", 0, number(-1), ""}, {"image.onnx", 2, number(-1), ""}, {"text.onnx", 0, number(-1), ""},
		{"image.onnx", 0, number(0), "input pixels float[0,3,16,16] has a size of 0"},
		{"image.onnx", 2, number(0), "input pixels float[2,3,0,16] has a size of 0"},
		{"image.onnx", 3, number(0), "input pixels float[2,3,16,0] has a size of 0"},
		{"image.onnx", 1, number(0), "sizes 0 and 3 differ"},
		{"text.onnx", 0, number(0), "input embeddings float[0,32,8] has a size of 0"},
		{"text.onnx", 1, number(0), "input embeddings float[2,0,8] has a size of 0"},
		{"text.onnx", 2, number(0), "sizes 0 and 8 differ"},
		{"image.onnx", 0, number(-3), `value "pixels": a size of -3; 0 to`},
		{"text.onnx", 1, number(-1 << 63), `value "embeddings": a size of -9223372036854775808; 0 to`},
	} {
		dir := smallTowers(t, graph.Static(2, 3, 16, 16), graph.Static(2, 32, 8))
		changed(t, dir, c.file, func(m *onnx.ModelProto) {
			for _, in := range m.Graph.Input {
				if s := in.Type.GetTensorType().Shape; c.axis < len(s.Dim) {
					c.set(s.Dim[c.axis])
				}
			}
		})
		what := fmt.Sprint(c.file, " axis ", c.axis, ", ", c.want)
		switch err := useTower(t, dir); {
		case c.want != "":
			goldentest.WantErrorOf(t, what, err, c.file, c.want)
		case err != nil:
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzExportedConfig: with any bundle.json of exported towers, the folder opens or returns an error of one line.
func FuzzExportedConfig(f *testing.F) {
	for _, text := range []string{`{}`, `{"logit_scale": 1e40}`, `{"logit_scale_log": -1e9, "logit_bias": 1e300}`,
		`{"files": {"text.onnx": {"size": -1, "sha256": "x"}, ".": {}, "../x": {}, "": {}}}`, `{"image_size": 16}`,
		`{"preprocess": {"std": [0, 1e-30, 1e30]}}`, `{"image": {"file": "text.onnx"}, "variant": "fp16"}`,
		`{"tokenizer": "\n", "text": {"ids": "\n", "causal": true}}`, `{"name": "a\nb"}`, `{"model": "\u2028"}`} {
		f.Add([]byte(text))
	}
	dir := filetest.Copy(f, filepath.Join(f.TempDir(), "tower"), "testdata/hf-half")
	f.Fuzz(func(t *testing.T, text []byte) {
		filetest.Write(t, filepath.Join(dir, bundle.ManifestFile), text)
		if err := useTower(t, dir); err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("not one line: %q", err)
		}
	})
}
