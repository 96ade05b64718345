package spec_test

import (
	"slices"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
)

// The losses that are not known as means over rows, of all methods and of wrappers over a learner of image prompts.
func TestLossesThatAreMeansOverRows(t *testing.T) {
	var batchwise []string
	options := map[string]map[string]any{"fedtpg": {"heads": 2}, "fedproto": {"of": "image"}}
	for _, d := range methods.Table() {
		base, with := d.Name, []string(nil)
		if d.Wrapper() {
			base, with = "fedvpt", []string{d.Name}
		}
		if d.Name == "appr" { // acts on text prompts
			base = "promptfl"
		}
		m := enginetest.Build(t, base, with, options[d.Name])
		task := methodtest.ClientsOfOneBackbone(4)[0].Backbone.Task()
		task.Clients, task.Classes, task.Backbone = 4, 4, "toy"
		s := method.ScopeOf(m, task)
		loss := m.Loss(s, m.Logits(s))
		if err := s.Graph().Err(); err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		if !spec.MeanOverRows(loss) {
			batchwise = append(batchwise, d.Name)
		}
	}
	// FedCLIP and FLoRA have CLIP's contrastive loss. The loops of FedOTP and PLOT, Powder's stack of scores and
	// pFedMoAP's heads are not known. They need not be: these methods compute little for each image.
	if want := []string{"fedclip", "fedlora", "fedotp", "pfedmoap", "plot", "powder"}; !slices.Equal(batchwise, want) {
		t.Errorf("losses of %v are no means over rows, want %v", batchwise, want)
	}
}

// By hand: parts that read pixels alone, by image and over the batch. What also reads a parameter does not matter.
func TestEachImageAlone(t *testing.T) {
	g := graph.New()
	pixels := g.InputFrom(method.Input{Kind: method.RowInput, Name: method.PixelsInput}, graph.Float,
		graph.Shape{graph.Sym("B"), graph.StaticDim(3)})
	w := g.Input("param/w", graph.Float, graph.Static(3))
	for _, c := range []struct {
		of   graph.Node
		want bool
	}{
		{pixels.Exp().Mul(w).Mean(), true},
		{pixels.Mul(w).Sub(pixels.Mul(w).Mean(0)).Mean(), true},
		{pixels.Sub(pixels.Mean(0)).Mul(w).Mean(), false},
		{pixels.Reshape(-1).Mean().Mul(w).Mean(), false},
		{w.Mean(), true},
	} {
		if got := spec.EachImageAlone(c.of); got != c.want {
			t.Errorf("%v: %v", c.of, got)
		}
	}
}

// By hand, over x [B,3] and y [B,3]: losses that are a mean over rows, and losses that read two rows at once.
func TestMeanOverRows(t *testing.T) {
	g := graph.New()
	rows := graph.Shape{graph.Sym("B"), graph.StaticDim(3)}
	x, y := g.Input("image", graph.Float, rows), g.Input("other", graph.Float, rows)
	w, label := g.Input("param/w", graph.Float, graph.Static(3, 3)), g.Input("label", graph.Int64, rows[:1])
	across := g.Input("across", graph.Float, graph.Shape{graph.StaticDim(1), graph.Sym("B")})
	for _, c := range []struct {
		what string
		of   graph.Node
		want bool
	}{
		{"a parameter's norm", w.Square().Sum(), true},
		{"the mean of products with a parameter", x.MatMul(w).Mean(), true},
		{"cross entropy", graph.CrossEntropy(x.MatMulT(w), label), true},
		{"a sum of means, weighted", x.Mean().MulScalar(3).Add(y.Square().Sum(-1).Mean().Neg()).AddScalar(2), true},
		{"rows compared with rows of their own", x.Mul(y).Sum(-1).Softplus().Mean(), true},
		{"a table's rows", x.Sub(w.Rows(label)).Abs().Mean(), true},
		{"a mean by a parameter", x.Mean().Div(w.Sum()), true},
		{"a parameter by a mean", w.Sum().Div(x.Mean()), false},
		{"the same rows of every batch", x.Rows(g.Input("param/at", graph.Int64, graph.Static(2))).Mean(), false},
		{"two columns of a row", graph.Concat(1, x, y).Mean(), true},
		{"a row's column beside a fixed one", graph.Concat(1, x, w).Mean(), false},
		{"rows behind rows", graph.Concat(0, x, y).Mean(), false},
		{"a sum over rows", x.Sum(), false},
		{"rows themselves", x, false},
		{"the square of a mean", x.Mean().Square(), false},
		{"a mean over a mean", x.Mean().Div(y.Mean()), false},
		{"rows against all rows", x.MatMulT(y).Mean(), false},
		{"rows less their mean", x.Sub(x.MeanKeep(0)).Square().Mean(), false},
		{"softmax over rows", x.Softmax(0).Mean(), false},
		{"a parameter for each of three rows", x.Add(w).Mean(), false},
		{"columns as rows", x.T().MatMul(y).Mean(), false},
		{"numbers of rows by a table of rows", x.Mean(-1).MatMul(across.T().MatMul(across)).Mean(), false},
		{"sums of columns, as many as rows",
			g.Input("square", graph.Float, graph.Shape{rows[0], rows[0]}).Sum(0).Square().Mean(), false},
		{"numbers of all rows in one axis, which no rule knows", x.Reshape(-1).Mean(), false},
	} {
		if got := spec.MeanOverRows(c.of); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
