package bench

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// Towers are known by name, the text tower of ViT-L/14 is wider than the others, and both towers fit.
func TestFullTowers(t *testing.T) {
	for name, width := range map[string]int{"": 512, "rn50": 512, "vit-b16": 512, "vit-l14": 768} {
		text, vision, err := fullTowers(name)
		if err != nil || text.Width != width || text.EmbedDim != vision.EmbedDim || text.Check() != nil ||
			vision.Check() != nil {
			t.Errorf("%s: %+v %+v %v", name, text, vision, err)
		}
	}
	_, _, err := fullTowers("vit-l15")
	goldentest.WantError(t, err, "take rn50")
}

// TestExperiment runs the quick form: 1 + 2 rounds of Table S5's protocol with CIFAR-100's classes and the cost of
// clients.
func TestExperiment(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a few small federations")
	}
	r, err := Measure(context.Background(), Options{Quick: true, Rounds: 2, Workers: 1,
		Classes: []string{"cifar100", "cifar10"}}, Experiment)
	goldentest.NoError(t, err)
	if len(r.Tables) != 3 || len(r.Tables[0].Rows) != 4 || len(r.Targets) != 2 {
		t.Fatalf("%+v", r)
	}
	for i := range 3 {
		sum, together := 0.0, cell(t, r, 0, i, "together")
		for _, name := range phaseNames {
			v := cell(t, r, 0, i, name)
			if sum += v; v < 0 || v == 0 && name != "statistics" && name != "server" {
				t.Errorf("round %d: %s takes %g s", i, name, v)
			}
		}
		if sum > together+1e-6 || sum < together/2 {
			t.Errorf("round %d of %g s: %v", i, together, r.Tables[0].Rows[i])
		}
	}
	for column := range phaseNames { // the median of the two rounds that count
		name := r.Tables[0].Columns[1+column]
		want := (cell(t, r, 0, 1, name) + cell(t, r, 0, 2, name)) / 2
		if got := cell(t, r, 0, 3, name); math.Abs(got-want) > 1e-12 {
			t.Errorf("the median of %s is %g, want %g", name, got, want)
		}
	}
	ratio := 1 + cell(t, r, 0, 3, "evaluation")/cell(t, r, 0, 3, "training")
	if x := r.Targets[0]; math.Abs(x.Got-ratio) > 1e-12 || x.Met != (ratio <= 1.4) {
		t.Errorf("%+v, want %g", x, ratio)
	}
	// 20 clients take a step or more, 100 are tested on a batch or more
	training, evaluation := cell(t, r, 1, 0, "s"), cell(t, r, 1, 1, "s")
	if step, test := cell(t, r, 1, 2, "s"), cell(t, r, 1, 3, "s"); step <= 0 || test <= 0 || training < 20*step ||
		evaluation < 100*test {
		t.Errorf("published form: %v", r.Tables[1].Rows)
	}
	for i, clients := range []float64{100, 1000} {
		round, rest, own := cell(t, r, 2, i, "ms of a round (min-max)"), cell(t, r, 2, i, "ms of a turn's rest"),
			cell(t, r, 2, i, "of the processor")
		if cell(t, r, 2, i, "clients") != clients || rest <= 0 || rest > 1e3*round || own <= 0 ||
			cell(t, r, 2, i, "heap MB") <= 0 || cell(t, r, 2, i, "s of round with test") <= 0 {
			t.Errorf("growth: %v", r.Tables[2].Rows[i])
		}
	}
	most := max(cell(t, r, 2, 0, "of the processor"), cell(t, r, 2, 1, "of the processor"))
	if math.Abs(r.Targets[1].Got-most/1e3) > 1e-12 {
		t.Errorf("growth: %v, %+v", r.Tables[2].Rows, r.Targets[1])
	}
	// from the protocol: 20 of 100 clients, and 101 classes
	goldentest.Contains(t, r.Text(), "100 clients, 20 train in a round", "100 classes, 6593 images", "evaluation",
		"published form", "clients train in a round")
}

// TestMethods measures methods of every kind on small towers: with only the text tower, with the image tower, with
// patches, with statistics, a wrapper, and a method without trained parameters.
func TestMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a few small federations")
	}
	only := []string{"promptfl", "fedvpt", "fedotp", "gptfl", "zeroshot", "ggtpc"}
	r, err := Measure(context.Background(), Options{Quick: true, Only: only}, Methods)
	goldentest.NoError(t, err)
	for i, row := range r.Tables[0].Rows {
		if only[i] == "zeroshot" {
			if !strings.Contains(fmt.Sprint(row...), "learns nothing") {
				t.Errorf("zeroshot: %v", row)
			}
			continue
		}
		if strings.TrimPrefix(row[0].(string), "+ ") != only[i] || len(row) != 6 || row[1].(Timing).Runs != 6 ||
			cell(t, r, 0, i, "products") <= 0 || cell(t, r, 0, i, "products") > 100 ||
			strings.Count(row[5].(string), "%") != 3 {
			t.Errorf("%s: %v", only[i], row)
		}
	}
	if !strings.Contains(r.Text(), "+ ggtpc") || len(r.Targets) > 0 {
		t.Errorf("targets %v:\n%s", r.Targets, r.Text())
	}
	r, err = Measure(context.Background(), Options{Quick: true, Only: only[:1], Classes: []string{"cifar100"},
		Session: ort.Options{Bind: true}}, Methods)
	if err != nil || !strings.Contains(r.Title, "100 classes") || cell(t, r, 0, 0, "products") <= 0 {
		t.Errorf("%v:\n%s", err, r.Text())
	}
	if _, err := Measure(context.Background(), Options{Only: []string{"fedmagic"}}, Methods); err == nil {
		t.Error("an unknown method was measured")
	}
}

// TestProfile reads handwritten profiles of two runs. Only the second run counts, of 0.5 s with 0.45 s of operators.
// CUDA leaves Add to the CPU in it; there the rest is no time of the profiler.
func TestProfile(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "step")
	for provider, gap := range map[string]float64{"CPU": 0.05, "CUDA": 0} {
		node := func(op, us string) string {
			on := provider
			if op == "Add" {
				on = "CPU"
			}
			return `{"cat":"Node","name":"x_kernel_time","dur":` + us + `,"args":{"op_name":"` + op +
				`","provider":"` + on + `ExecutionProvider"}}`
		}
		run := `{"cat":"Session","name":"model_run","dur":500000,"args":{}}`
		text := "[" + strings.Join([]string{node("MatMul", "700"), run, node("MatMul", "300000"),
			node("Add", "100000"), `{"cat":"Node","name":"x_fence_before","dur":5,"args":{"op_name":"Add"}}`,
			node("Add", "50000"), run}, ",") + "]"
		filetest.Write(t, prefix+"_1.json", text)
		spent, between, left, err := readProfiles(prefix, 2, 1)
		if err != nil || math.Abs(between-gap) > 1e-9 || math.Abs(spent["MatMul"]-0.3) > 1e-9 ||
			math.Abs(spent["Add"]-0.15) > 1e-9 || len(spent) != 2 || left["Add"] != (provider == "CUDA") {
			t.Fatalf("%s: spent %v, %v between operators, left to the CPU %v, %v", provider, spent, between, left, err)
		}
		// 60 % products, 30 % Add, 10 % elsewhere
		if products, slowest := shares(spent, 0.5); math.Abs(products-60) > 1e-9 ||
			!slices.Equal(slowest, []string{"Add 30 %", "other 10 %"}) {
			t.Errorf("%g %% in products, %q", products, slowest)
		}
	}
	if _, _, _, err := readProfiles(prefix, 2, 1); err != nil {
		t.Errorf("the profile was not removed: %v", err)
	}
}
