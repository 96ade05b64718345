package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/engine/client"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort/orttest"
)

// sum returns the model of x + x, for x of so many numbers, and its description.
func sum(t testing.TB, size int) (client.Program, *onnx.ModelProto) {
	t.Helper()
	in := method.Input{Kind: method.ParamInput, Name: "ctx"}
	g := graph.New()
	x := g.InputFrom(in, graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(size)})
	m := orttest.Model(t, graph.Output{Name: "y", Node: x.Add(x)})
	return client.Program{Kind: client.StepProgram, Backbone: "b", Weights: "w", Inputs: []method.Input{in},
		Gradients: map[string]method.Input{"y": in}}, m
}

// A graph is written once. The folder returns it for the equal graph alone, with other backbone files not at all. The
// index says what the graph computes.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, map[string]string{"b": "digest"})
	goldentest.NoError(t, err)
	p, m := sum(t, 3)
	for range 2 {
		if got, err := w.Program(p, m); err != nil || got != m {
			t.Fatal(err)
		}
	}
	second, more := sum(t, 4)
	second.Weights = "" // the file of the first one stays
	_, err = w.Program(second, more)
	goldentest.NoError(t, err)
	x, err := w.Close()
	if err != nil || len(x.Programs) != 2 || x.Programs[0].File != "b/step.onnx" ||
		x.Programs[1].File != "b/step-2.onnx" {
		t.Fatalf("%+v, %v", x.Programs, err)
	}
	if file := x.Backbones["b"].Weights; !filepath.IsAbs(file) || filepath.Base(file) != "w" {
		t.Errorf("weights %q, want w in the working directory", file)
	}
	got := fmt.Sprintf("%+v %+v", x.Programs[0].Inputs, x.Programs[0].Outputs)
	if want := "[{Name:param/ctx DType:float32 Shape:[B 3] From:param Of:ctx GradientOf:}] [{Name:y DType:float32 " +
		"Shape:[B 3] From: Of: GradientOf:param/ctx}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	_, err = Create(dir, nil)
	goldentest.WantError(t, err, "holds programs already")
	_, err = Open(dir, map[string]string{"b": "other digest"})
	goldentest.WantError(t, err, "other files of backbone b")

	f, err := Open(dir, map[string]string{"b": "digest"})
	goldentest.NoError(t, err)
	if got, err := f.Program(p, m); err != nil || len(got.Graph.Node) != 1 {
		t.Error(err)
	}
	other, unknown := sum(t, 5)
	_, err = f.Program(other, unknown)
	goldentest.WantError(t, err, "no program of kind step for backbone b", "write it again")
	// A file whose input or output has another name is not that of the graph.
	for _, values := range []string{"inputs", "outputs"} {
		_, renamed := sum(t, 3)
		value := renamed.Graph.Input[0]
		if values == "outputs" {
			value = renamed.Graph.Output[0]
		}
		value.Name = "z"
		filetest.Write(t, filepath.Join(dir, x.Programs[0].File), onnxtest.Marshal(t, renamed))
		f, err := Open(dir, nil)
		goldentest.NoError(t, err)
		_, err = f.Program(p, m)
		goldentest.WantError(t, err, "step.onnx: its "+values+" are ")
	}
	p.Backbone = ""
	_, err = f.Program(p, m)
	goldentest.WantError(t, err, "for the server")
}

// A program reads the next one of its backbone that computes all of its fixed inputs.
func TestLink(t *testing.T) {
	a, b := Value{Name: "fixed/0"}, Value{Name: "fixed/1"}
	index := Index{Programs: []Program{{File: "step", Backbone: "b",
		Inputs: []Value{{Name: "image"}, {Name: a.Name, From: client.FixedInput}}},
		{File: "of another backbone", Kind: client.FixedProgram, Backbone: "c", Outputs: []Value{a}},
		{File: "of other values", Kind: client.FixedProgram, Backbone: "b", Outputs: []Value{b}},
		{File: "fixed", Kind: client.FixedProgram, Backbone: "b", Outputs: []Value{b, a}}}}
	for i, want := range [][]string{{"fixed"}, nil, nil, nil} {
		if index.link(i); !slices.Equal(index.Programs[i].Reads, want) {
			t.Errorf("%s reads %v, want %v", index.Programs[i].File, index.Programs[i].Reads, want)
		}
	}
}

// An index of another version, or with a file outside of the folder, is refused.
func TestRead(t *testing.T) {
	for text, says := range map[string]string{
		`{"version":1}`: "has version 1, this program reads version 2",
		`{"version":2,"programs":[{"file":"../a.onnx"}]}`: "outside of the folder",
		`{"version":2,"programs":[{"file":"/a.onnx"}]}`:   "outside of the folder",
		`{"version":2,"programs":[{"file":"a.onnx"}]}`:    "a.onnx",
		`{`: File,
	} {
		dir := t.TempDir()
		filetest.Write(t, filepath.Join(dir, File), text)
		_, err := Open(dir, nil)
		goldentest.WantError(t, err, says)
	}
}

func FuzzOpen(f *testing.F) {
	_, m := sum(f, 3)
	b := onnxtest.Marshal(f, m)
	f.Add(`{"version":2,"programs":[{"file":"a.onnx","built":"x","backbone":"b"}]}`, b)
	f.Fuzz(func(t *testing.T, index string, model []byte) {
		dir := t.TempDir()
		if os.WriteFile(filepath.Join(dir, File), []byte(index), 0o644) != nil ||
			os.WriteFile(filepath.Join(dir, "a.onnx"), model, 0o644) != nil {
			t.Skip()
		}
		x, err := Open(dir, nil)
		if err != nil {
			return
		}
		_ = x.Text()
		p, m := sum(t, 3)
		for i := range x.Programs {
			_, x.Programs[i].Built, _ = encode(m)
			x.Programs[i].Backbone = p.Backbone
		}
		x.Program(p, m)
	})
}
