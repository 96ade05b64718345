package bundle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/models/tokenizer"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/tensor"
)

// stub keeps what it is asked for.
type stub struct {
	Towers
	ids [][]int
}

func (s *stub) TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error) {
	s.ids = ids
	return g.Scalar(1), nil
}

// Embed returns [id, 10 id] for each id.
func (s *stub) Embed(ids []int) (out []float32, err error) {
	for _, id := range ids {
		out = append(out, float32(id), float32(10*id))
	}
	return out, nil
}

func (s *stub) Report(r *Report) {
	r.Add("w", "F16", []int{2, 3}, "")
	r.Add("b", "F32", []int{3}, "")
	r.Add("a", "F32", []int{5}, "")
}

// withFormats registers two formats and some bundles for a test: a folder with the file plain holds a bundle that is
// named by this file, one with the file parts holds a bundle of parts.
func withFormats(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", os.Getenv("XDG_CACHE_HOME"))
	t.Setenv(ModelsVariable, "")
	before, known := forms, registered
	t.Cleanup(func() { forms, registered = before, known })
	registered = map[string]func() (*Bundle, error){}
	format := func(mark string, parts bool) Format {
		return Format{
			NameOf: func(dir string) (string, bool) {
				b, err := os.ReadFile(filepath.Join(dir, mark))
				return string(b), err == nil
			},
			Open: func(s Spec) (*Bundle, error) {
				return &Bundle{Name: "own of " + mark, Dir: s.Folder, Source: fmt.Sprintf("%+v", s), LogitScale: 100,
					LogitBias: -10, Towers: &stub{}}, nil
			},
			Parts: parts,
		}
	}
	forms = []Format{format("plain", false), format("parts", true)}
	forms[1].Inspect = func(path string) (Report, error) { return Report{Kind: "inspected", Path: path}, nil }
}

// made writes a file in a folder below dir and returns the folder.
func made(t *testing.T, dir, file, content string) string {
	t.Helper()
	return filepath.Dir(filetest.Write(t, filepath.Join(dir, file), content))
}

// Names are found in order: as a folder, as the folder inside a search folder, as the name inside such a folder, as a
// registered bundle.
func TestFind(t *testing.T) {
	withFormats(t)
	dir, other := t.TempDir(), t.TempDir()
	a := made(t, dir, "a/plain", "named")
	b := made(t, other, "b/plain", "a") // found only if no folder is called a
	made(t, other, ".hidden/plain", "secret")
	c := made(t, other, "c/parts", "")
	Register("part of the program", func() (*Bundle, error) { return &Bundle{Name: "inside"}, nil })
	Register("broken", func() (*Bundle, error) { return nil, errors.New("it is broken") })
	t.Setenv(ModelsVariable, other)
	for name, want := range map[string]string{
		a: a, "a": a, "named": a, "b": b, "c": c, filepath.Join(dir, "a") + "/": a,
		"image=i,text=t": "", "folder=a,name=n": a, "folder=" + b + ",name=n": b,
	} {
		found, err := Find(name, dir)
		if err != nil || found.Dir != want || found.Registered {
			t.Errorf("%s: %+v, %v, want %s", name, found, err, want)
		}
	}
	if found, err := Find("a"); err != nil || found.Dir != b { // by its name, as dir is not searched
		t.Errorf("%+v, %v", found, err)
	}
	if found, err := Find("part of the program"); err != nil || found.Name != "inside" || !found.Registered {
		t.Errorf("%+v, %v", found, err)
	}
	_, err := Find("broken")
	goldentest.WantErrorOf(t, "broken", err, "it is broken")
	_, err = Find("")
	goldentest.WantErrorOf(t, "no name", err, "no bundle named: give a name or the path of a folder")
	_, err = Find("x", dir)
	goldentest.WantErrorOf(t, "unknown", err, `no bundle "x" in `+dir+", "+other+", bundles, ",
		"; there is a, broken, named, part of the program: give")
	_, err = Find("folder=x", dir)
	goldentest.WantErrorOf(t, "unknown in a specification", err, `no bundle "x"`)
	_, err = Find("colour=x", dir)
	goldentest.WantErrorOf(t, "unknown key", err, "colour")
	_, err = Find("./x", dir)
	goldentest.WantErrorOf(t, "a path", err, "x: no such folder")
	want := []Entry{{"a", b}, {"broken", ""}, {"named", a}, {"part of the program", ""}}
	if got := List(dir); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if JoinOrNone(nil) != "none" || JoinOrNone([]string{"a", "b"}) != "a, b" {
		t.Error("names are joined wrongly")
	}
	for _, name := range []string{"broken", "a/b"} { // twice, and impossible
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is registered", name)
				}
			}()
			Register(name, func() (*Bundle, error) { return nil, nil })
		}()
	}
}

func TestOpen(t *testing.T) {
	withFormats(t)
	dir := t.TempDir()
	plain, parts, none := made(t, dir, "a/plain", "n"), made(t, dir, "b/parts", "n"), made(t, dir, "c/file", "")
	b, err := openSpec(Spec{Folder: plain, Name: "given", LogitScale: 50})
	if err != nil || b.Name != "given" || b.LogitScale != 50 || b.LogitBias != -10 ||
		b.Source != fmt.Sprintf("%+v", Spec{Folder: plain, Name: "given", LogitScale: 50}) {
		t.Errorf("%+v, %v", b, err)
	}
	b, err = openSpec(Spec{Folder: parts, Name: "given", Variant: "fp16", LogitBias: -5})
	if err != nil || b.Name != "given" || b.LogitScale != 100 || b.LogitBias != -5 ||
		b.Source != fmt.Sprintf("%+v", Spec{Folder: parts, Name: "given", Variant: "fp16", LogitBias: -5}) {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err = Open(plain); err != nil || b.Name != "own of plain" {
		t.Errorf("%+v, %v", b, err)
	}
	for range 2 { // whichever format is the first one
		b, err = openSpec(Spec{Image: "i", Text: "t", Name: "given"})
		if err != nil || b.Name != "own of parts" || !strings.Contains(b.Source, "Image:i") {
			t.Errorf("%+v, %v", b, err)
		}
		slices.Reverse(forms)
	}
	_, err = openSpec(Spec{Folder: plain, Variant: "fp16"})
	goldentest.WantErrorOf(t, "a variant", err, plain+` was converted and has no variant "fp16"`)
	_, err = Open(none)
	goldentest.WantErrorOf(t, "no bundle", err, none+" is not a bundle: it has no bundle.json")
	forms = forms[:1]
	_, err = openSpec(Spec{Image: "i", Text: "t"})
	goldentest.WantErrorOf(t, "two folders", err, "folders of one tower each are not supported here")
	for name, good := range map[string]bool{"a": true, "ViT-B 16.v2": true, "": false, ".": false, "..": false,
		"a/b": false, `a\b`: false, "a:b": false, "a\nb": false, "a\x00": false, strings.Repeat("a", 200): true,
		strings.Repeat("a", 201): false} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, c := range []struct{ text, want string }{{"folder=/a/b,name=n", "n"}, {"/a/b", "b"},
		{"image=/a/i,text=/a/t", "i"}, {"colour=/a/x", "x"},
		{"hf:a/b", "a--b"}, {"hf:a/b@v1", "a--b@v1"}, {"folder=hf:a/b,logit_scale=2", "a--b"}, {"a--b@v1", "a--b@v1"},
		{"hf:../b", "b"}} {
		if got := ShortName(c.text); got != c.want {
			t.Errorf("%s is called %s", c.text, got)
		}
	}
}

func TestManifest(t *testing.T) {
	if maxManifest != 16777216 || MaxRows != 16777216 || MaxExtent != 1048576 {
		t.Error("the limits are others")
	}
	if VersionOf(map[string]File{"text/model.onnx": {}}) != Version || VersionOf(map[string]File{"text/model.onnx": {},
		"text/text-gradient.onnx": {}}) != GradientVersion {
		t.Error("only a gradient file raises the version")
	}
	dir := t.TempDir()
	for size, good := range map[int]bool{maxManifest: true, maxManifest + 1: false} {
		made(t, dir, ManifestFile, strings.Repeat("x", size))
		if b, err := ReadManifest(dir); (err == nil) != good || good && len(b) != size {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	for text, want := range map[string]Origin{"{}": {}, `{"origin":{"source":"a/b"}}`: {Source: "a/b"}} {
		made(t, dir, ManifestFile, text)
		if got, ok := OriginOf(dir); got != want || ok != (want.Source != "") {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	if _, ok := OriginOf(filepath.Join(dir, "none")); ok {
		t.Error("no bundle has an origin")
	}
}

// By hand: 6 half-precision numbers take 12 bytes, 8 floats 32.
func TestInspect(t *testing.T) {
	withFormats(t)
	dir := t.TempDir()
	plain := made(t, dir, "a/plain", "n")
	made(t, dir, "a/bundle.json", "{}")
	made(t, dir, "c/weights", "")
	t.Setenv(ModelsVariable, dir)
	for _, path := range []string{plain, filepath.Join(plain, ManifestFile), "n", "folder=n", "folder=" + plain} {
		r, err := Inspect(path)
		if err != nil || r.Kind != KindBundle || r.Path != plain || r.Bundle == nil || len(r.Tensors) != 3 ||
			r.Tensors[0].Name != "a" || !slices.Equal(r.DTypes, []DTypeReport{{"F16", 1, 6, 12}, {"F32", 2, 8, 32}}) {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "c"), filepath.Join(dir, "c", "weights")} {
		if r, err := Inspect(path); err != nil || r.Kind != "inspected" || r.Path != path {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
	_, err := Inspect("x")
	goldentest.WantErrorOf(t, "a name", err, "no such file", `no bundle "x"`)
	_, err = Inspect("./x")
	if goldentest.WantErrorOf(t, "a path", err, "no such file"); strings.Contains(err.Error(), "no bundle") {
		t.Error(err)
	}
	forms = forms[:1]
	_, err = Inspect(filepath.Join(dir, "c"))
	goldentest.WantErrorOf(t, "no format", err, "c: no known format")
}

// An ONNX file is described with its operators, values and the files that hold its weights.
func TestInspectONNX(t *testing.T) {
	withFormats(t)
	dir := t.TempDir()
	size := func(name string, dims ...string) *onnx.ValueInfoProto {
		s := &onnx.TensorShapeProto{}
		for _, d := range dims {
			p := &onnx.TensorShapeProto_Dimension{}
			switch d {
			case "N":
				p.Value = &onnx.TensorShapeProto_Dimension_DimParam{DimParam: d}
			case "4":
				p.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: 4}
			}
			s.Dim = append(s.Dim, p)
		}
		return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{
			TensorType: &onnx.TypeProto_Tensor{ElemType: int32(graph.Float), Shape: s}}}}
	}
	weight := func(name, file string) *onnx.TensorProto {
		p := &onnx.TensorProto{Name: name, DataType: int32(graph.Float), Dims: []int64{2, 4}}
		if file == "" {
			p.RawData = make([]byte, 32)
		} else {
			onnx.SetExternal(p, onnx.External{File: file, Length: 32})
		}
		return p
	}
	any := size("any")
	any.GetType().GetTensorType().Shape = nil
	m := &onnx.ModelProto{IrVersion: 8, ProducerName: "maker", ProducerVersion: "2",
		OpsetImport:   []*onnx.OperatorSetIdProto{{Version: 18}, {Domain: onnx.Microsoft, Version: 3}},
		MetadataProps: []*onnx.StringStringEntryProto{{Key: "k", Value: "v"}},
		Graph: &onnx.GraphProto{Name: "g", Input: []*onnx.ValueInfoProto{size("x", "N", "4", "?")},
			Output: []*onnx.ValueInfoProto{any, size("y")}, Initializer: []*onnx.TensorProto{weight("c", "w.bin"),
				weight("a", ""), weight("b", "w.bin")},
			Node: []*onnx.NodeProto{{OpType: "Neg", Input: []string{"x"}, Output: []string{"any"}},
				{OpType: "Neg", Input: []string{"any"}, Output: []string{"h"}},
				{OpType: "QuickGelu", Domain: onnx.Microsoft, Input: []string{"h"}, Output: []string{"y"}}}}}
	b := onnxtest.Marshal(t, m)
	made(t, dir, "w.bin", strings.Repeat("\x00", 32))
	path := filepath.Join(made(t, dir, "m.ONNX", string(b)), "m.ONNX")
	r, err := Inspect(path)
	goldentest.NoError(t, err)
	got := fmt.Sprintln(r.Kind, r.Path == path, r.Format, r.Opsets, r.Ops, r.Metadata, r.Inputs, r.Outputs, r.Tensors,
		r.DTypes)
	want := KindONNX + " true maker 2 map[:18 com.microsoft:3] map[Neg:2 com.microsoft:QuickGelu:1] map[k:v] " +
		"[{x F32 [N 4 ?]}] [{any F32 []} {y F32 []}] [{a F32 [2 4] } {b F32 [2 4] w.bin} {c F32 [2 4] w.bin}] " +
		"[{F32 3 24 96}]\n"
	if got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	if files := fmt.Sprint(r.Files); files != fmt.Sprintf("[{m.ONNX %d} {w.bin 32}]", len(b)) {
		t.Errorf("files %s", files)
	}
	if r.Outputs[0].Shape != nil || r.Outputs[1].Shape == nil {
		t.Errorf("shapes %#v", r.Outputs)
	}
	if TypeName(graph.Half) != "F16" || TypeName(onnx.TensorProto_STRING) != "STRING" {
		t.Error("names of types")
	}
}

// Features may differ by 1e-4 of the largest number, here by 0.001.
func TestSameFeatures(t *testing.T) {
	want := tensor.Of([]float32{3, -10}, 2)
	if err := SameFeatures(tensor.Of([]float32{3.0009, -10}, 2), want); err != nil {
		t.Error(err)
	}
	goldentest.WantError(t, SameFeatures(tensor.Of([]float32{3.0011, -10}, 2), want), "features differ by 0.0011")
	for _, pair := range [][2]*tensor.Tensor{{nil, want}, {want, nil}, {tensor.New(1), want},
		{want, tensor.Of([]float32{3, float32(math.NaN())}, 2)},
		{want, tensor.Of([]float32{float32(math.Inf(1)), 3}, 2)}} {
		goldentest.WantError(t, SameFeatures(pair[0], pair[1]), "in place of")
	}
}

// A gradient file may leave the number of rows open, here that of the last two at most; their size is fixed. Weights
// that it transposes are read as they are. A gradient has the shape of its input.
func TestBoxFeatures(t *testing.T) {
	dir := t.TempDir()
	input := func() graph.Node {
		return graph.New().Input("x", graph.Float, graph.Shape{graph.Sym("N"), graph.StaticDim(6)})
	}
	file := filepath.Join(dir, TextGradientFile)
	featuresOf := func() graph.Node {
		box, err := OpenBox(dir, TextGradientFile, "features", "x")
		goldentest.NoError(t, err)
		return box.Features(map[string]graph.Node{"x": input()})
	}
	x := input()
	w := x.Graph().Const(tensor.New(4, 6))
	features := graph.Output{Name: "features", Node: x.Slice(0, -2, math.MaxInt64).MatMul(w.T())}
	goldentest.NoError(t, WriteGradient(file, dir, features, "x"))
	y := featuresOf()
	if y.Dim(1) != 4 || y.Graph().Err() != nil {
		t.Errorf("features of shape %v: %v", y.Shape(), y.Graph().Err())
	}
	model, err := graph.Model(graph.Output{Name: "y", Node: y})
	goldentest.NoError(t, err)
	if slices.ContainsFunc(model.Graph.Node, func(n *onnx.NodeProto) bool { return n.OpType == "Transpose" }) {
		t.Error("the weights are transposed")
	}
	x = input()
	features.Node = x
	dy := x.Graph().Input(grad.Cotangent+"features", graph.Float, x.Shape())
	narrow := graph.Output{Name: grad.Gradient + "x", Node: dy.Slice(1, 0, 5)}
	goldentest.NoError(t, WriteGraph(file, dir, []graph.Output{features, narrow}))
	y = featuresOf()
	x, _ = y.Graph().InputNamed("x")
	_, err = grad.Of(y.Sum(), x)
	goldentest.WantError(t, err, "its output grad/x has shape [N,5], must be [N,6]")
}

// words returns a bundle with a small vocabulary: bytes, and "cat" as one word.
func words(t *testing.T) (*Bundle, *stub) {
	t.Helper()
	tokens, err := tokenizer.FromMerges(strings.NewReader("#version: 0.2\nc a\nca t</w>\n"), 0)
	goldentest.NoError(t, err)
	s := &stub{}
	return &Bundle{Name: "b", Towers: s, tokens: tokens, Text: clip.TextArch{Context: 5, Width: 2}}, s
}

// A text takes its start and end tokens, and no more tokens than the context. A template has its words before the
// class, and what follows behind each class.
func TestTexts(t *testing.T) {
	b, s := words(t)
	sos, eot := b.tokens.SOS(), b.tokens.EOT()
	cat, err := b.tokens.Encode("cat")
	stop, err2 := b.tokens.Encode(".")
	if err != nil || err2 != nil || len(cat) != 1 || len(stop) != 1 {
		t.Fatalf("%v, %v, %v, %v", cat, err, stop, err2)
	}
	g := graph.New()
	if _, err = b.Sentences(g, []string{"cat", "cat cat cat"}); err != nil || fmt.Sprint(s.ids) != fmt.Sprint([][]int{
		{sos, cat[0], eot}, {sos, cat[0], cat[0], cat[0], eot}}) {
		t.Errorf("%v, %v", s.ids, err)
	}
	_, err = b.Sentences(g, []string{"cat cat cat cat"})
	goldentest.WantErrorOf(t, "a long text", err,
		`bundle b: tokenizer: text "cat cat cat cat" takes 6 tokens with start and end, the context has 5: shorten it`)
	_, err = b.Sentences(g, nil)
	goldentest.WantErrorOf(t, "no text", err, "bundle b: no texts")
	ids, err := b.ClassTokens([]string{"cat"})
	if err != nil || fmt.Sprint(ids) != fmt.Sprint([][]int{{cat[0], stop[0], eot}}) {
		t.Errorf("%v, %v", ids, err)
	}
	w, suffixes, err := b.SplitTemplate([]string{"cat"}, "cat {}.")
	if err != nil || fmt.Sprint(w.Shape, w.Data) != fmt.Sprint([]int{1, 2}, []int{cat[0], 10 * cat[0]}) {
		t.Fatalf("%v, %v", w, err)
	}
	if _, again, err := b.suffixesOf([]string{"cat"}, someWord, "."); err != nil || again != suffixes {
		t.Error("the same classes are embedded twice")
	}
	if w, _, err := b.SplitTemplate([]string{"cat"}, "{} cat"); err != nil || w != nil {
		t.Errorf("%v, %v", w, err)
	}
	for _, template := range []string{"cat", "cat{}"} {
		_, _, err = b.SplitTemplate([]string{"cat"}, template)
		goldentest.WantErrorOf(t, template, err, "must have {} for the class, with a space in front")
	}
	b.suffixes = nil
	for i := range maxSuffixes + 1 {
		if _, _, err := b.suffixesOf([]string{fmt.Sprint(i)}, someWord, "."); err != nil {
			t.Fatal(err)
		}
		if want := i%maxSuffixes + 1; len(b.suffixes) != want {
			t.Errorf("%d lists are kept, want %d", len(b.suffixes), want)
		}
	}
}

// A class has the tokens that it has in the whole text "a photo of a cat.", also if they hold the space in front of it.
// The ids are those of Hugging Face's tokenizers 0.23.3.
func TestNamesBehindWords(t *testing.T) {
	for name, want := range map[string][]int{"gpt2": {66, 222, 435, 399, 339, 403, 366, 15, 1},
		"llama3": {66, 222, 433, 397, 338, 401, 365, 15, 1}, "t5": {45, 64, 24, 45, 3, 77, 4, 1}} {
		tokens, err := tokenizer.Load("../tokenizer/testdata/files/" + name)
		b := &Bundle{Towers: &stub{}, tokens: tokens, Text: clip.TextArch{Width: 2}}
		ids, err2 := b.ClassTokens([]string{"cat"})
		w, suffixes, err3 := b.SplitTemplate([]string{"cat"}, "a photo of a {}.")
		goldentest.NoError(t, errors.Join(err, err2, err3))
		if n := w.Shape[0]; !slices.Equal(ids[0], want[n:]) || !slices.Equal(suffixes.IDs[0], want[n:]) {
			t.Errorf("%s: class %v, template %d words and %v, want %v", name, ids, n, suffixes.IDs, want)
		}
	}
	b, _ := words(t) // whose word and full stop are one token
	b.tokens, _ = tokenizer.Load(filetest.Write(t, t.TempDir()+"/a.json", `{"model":{"type":"WordLevel","unk_token":`+
		`"x","vocab":{"x":1,"x.":3,".":4}},"post_processor":{"type":"BertProcessing","sep":["",1],"cls":["",1]}}`))
	if s, err := b.EmptySuffix(); err != nil || !slices.Equal(s.IDs[0], []int{4, 1}) {
		t.Errorf("%v, %v", s, err)
	}
}

// By hand: rows 2 and 0 of [[0,1],[2,3],[4,5]], 4 bytes into the file.
func TestEmbeddingRows(t *testing.T) {
	file := make([]byte, 4)
	for i := range 6 {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(float32(i)))
	}
	r := bytes.NewReader(file)
	if got, err := EmbeddingRows(r, 4, "F32", 3, 2, []int{2, 0}); err != nil || !slices.Equal(got,
		[]float32{4, 5, 0, 1}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, id := range []int{3, -1} {
		_, err := EmbeddingRows(r, 4, "F32", 3, 2, []int{id})
		goldentest.WantErrorOf(t, "an unknown token", err, fmt.Sprintf("no token %d: the vocabulary has 3", id))
	}
	_, err := EmbeddingRows(r, 8, "F32", 3, 2, []int{2})
	goldentest.WantErrorOf(t, "a short file", err, "token 2: EOF")
}

// The vocabulary may be smaller than the embedding, not larger. It is read once.
func TestTokenizerOfABundle(t *testing.T) {
	dir := made(t, t.TempDir(), "merges.txt", "#version: 0.2\nc a\nca t</w>\n")
	b := &Bundle{Name: "b", Dir: dir, Vocabulary: "merges.txt", TokenRows: 1 << 20}
	tokens, err := b.Tokenizer()
	goldentest.NoError(t, err)
	if again, err := b.Tokenizer(); err != nil || again != tokens {
		t.Error("it is read twice")
	}
	for rows, good := range map[int]bool{tokens.VocabSize(): true, tokens.VocabSize() - 1: false} {
		b = &Bundle{Name: "b", Dir: dir, Vocabulary: "merges.txt", TokenRows: rows}
		if _, err := b.Tokenizer(); (err == nil) != good || err != nil && !strings.Contains(err.Error(),
			fmt.Sprintf("has %d tokens, the token embedding %d rows", rows+1, rows)) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
	g := graph.New()
	if s := AddPixelsInput(g, 0, 8).Shape().String(); s != "[B,3,8,8]" {
		t.Error(s)
	}
	if s := AddPixelsInput(graph.New(), 1, 8).Shape().String(); s != "[1,3,8,8]" {
		t.Error(s)
	}
}
