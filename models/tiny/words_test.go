package tiny_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/models/bundle/bundletest"
	"promptfed/models/bundle/converted"
	"promptfed/models/clip"
	"promptfed/models/tiny"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// A hand-written template that is split into words, which all classes share, and the rest of each class has the
// features of the whole text, and so has a prompt of words without a class.
func TestWordsAreTheText(t *testing.T) {
	orttest.RequireLibrary(t)
	files, err := tiny.FS("tiny-vit-b16")
	goldentest.NoError(t, err)
	src := t.TempDir()
	goldentest.NoError(t, os.CopyFS(src, files))
	b, err := converted.Convert(src, filepath.Join(t.TempDir(), "b"), converted.Options{})
	goldentest.NoError(t, err)
	classes := []string{"circle", "sea lion", "star"}
	g := graph.New()
	one := g.Input("one", graph.Float, graph.Static(1))
	var outputs []graph.Output
	compare := func(name string, f graph.Node, texts ...string) {
		whole := bundletest.Sentences(t, b, g, texts...)
		outputs = append(outputs, graph.Output{Name: "got " + name, Node: f.Mul(one)},
			graph.Output{Name: "want " + name, Node: whole.Mul(one)})
	}
	templates := []string{"a photo of a {}.", "{} texture.", "a photo of a {}, a type of pet.", "art of the {}"}
	prompts := bundletest.Templates(t, b, g, classes, templates)
	words, err := b.Words("a photo of a")
	goldentest.NoError(t, err)
	alone, err := b.EmptySuffix()
	goldentest.NoError(t, err)
	f := bundletest.Prompts(t, b, g, classes, append(prompts, clip.Prompt{Ctx: g.Const(words), Own: alone})...)
	for i, template := range templates {
		texts := convert.Slice(classes, func(c string) string { return strings.ReplaceAll(template, "{}", c) })
		compare(template, f[i], texts...)
	}
	compare("without a class", f[len(templates)], "a photo of a.")
	model := orttest.Model(t, outputs...)
	out := orttest.RunOnce(t, model, ort.Options{WeightsDir: b.WeightsDir()},
		tensor.Map{"one": tensor.Of([]float32{1}, 1)})
	for name, got := range out {
		what, ok := strings.CutPrefix(name, "got ")
		if !ok {
			continue
		}
		want := out["want "+what]
		for i, v := range want.Data {
			if math.Abs(float64(got.Data[i]-v)) > 1e-5*max(1, want.MaxAbs()) || len(got.Data) != len(want.Data) {
				t.Fatalf("%s: feature %d is %g, of the whole text %g", what, i, got.Data[i], v)
			}
		}
	}
	if _, _, err := b.SplitTemplate(classes, "a photo of a{}."); err == nil {
		t.Error("a class that is glued to a word is taken")
	}
}
