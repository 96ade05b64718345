package bench

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/models/clip"
	"promptfed/runtime/ort"
)

// small is a text tower whose steps take milliseconds.
var small = clip.TextArch{Width: 32, Layers: 3, Heads: 2, Context: 77, EmbedDim: 16}

func quick(o Options) Options {
	o.Quick, o.arch, o.Tokens = true, small, 4
	return o
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a few hundred small steps")
	}
	t.Setenv("TMPDIR", t.TempDir())
	seen := map[string]bool{}
	o := quick(Options{Threads: []int{1, 2}, Progress: func(what string, done, total int) {
		if done < 0 || done > total {
			t.Errorf("%s: %d of %d", what, done, total)
		}
		seen[what] = done == total
	}})
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for what, ended := range seen {
		if !ended {
			t.Errorf("progress of %q never ended", what)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "promptfed*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if len(r.Results) != 4 || len(r.SideBySide) != 2 || len(r.Projectors) != 5 {
		t.Fatalf("%d results, %d comparisons of clients, %d projectors", len(r.Results), len(r.SideBySide),
			len(r.Projectors))
	}
	for i, want := range []struct {
		classes              string
		count, rows, threads int
	}{
		// Rows: SOS and 4 prompt tokens, and each class's name tokens, full stop and EOT. CIFAR-10's names are one
		// token each; CIFAR-100's are 117 tokens, as openai/CLIP's simple_tokenizer cuts them.
		{"cifar10", 10, 5 + 10*3, 1}, {"cifar10", 10, 5 + 10*3, 2},
		{"cifar100", 100, 5 + nameTokens() + 200, 1}, {"cifar100", 100, 5 + nameTokens() + 200, 2},
	} {
		x := r.Results[i]
		if x.Classes != want.classes || x.ClassCount != want.count || x.Rows != want.rows || x.Threads != want.threads {
			t.Errorf("result %d is %s, %d classes, %d rows, %d threads; want %v", i, x.Classes, x.ClassCount, x.Rows,
				x.Threads, want)
		}
		if x.GradientError > 1e-5 {
			t.Errorf("%s: gradients of step and plain step differ by %g", x.Classes, x.GradientError)
		}
		for name, v := range map[string]float64{"speedup": x.Speedup, "of GEMM": x.OfGEMM, "step rate": x.StepRate,
			"GEMM rate": x.GEMMRate, "own rate": x.OwnRate, "of own": x.OfOwn,
			"plain rate": x.PlainRate, "square rate": x.SquareRate, "FedPHA rate": x.FedPHARate,
			"FedPHA of GEMM": x.FedPHAOfGEMM} {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("%s: %s is %v", x.Classes, name, v)
			}
		}
		for name, v := range map[string]Timing{"step": x.Step, "plain": x.Plain, "GEMM": x.GEMM, "own": x.Own,
			"FedPHA": x.FedPHA} {
			if !(0 < v.Min && v.Min <= v.Median && v.Median <= v.Max) || v.Runs == 0 {
				t.Errorf("%s: %s took %+v", x.Classes, name, v)
			}
		}
		if len(x.Targets) != 2 || x.Targets[0].Got != x.Speedup || x.Targets[1].Got != x.OfGEMM ||
			x.PlainClasses != 10 { // quickClasses
			t.Errorf("%s: targets %+v, plain step of %d classes", x.Classes, x.Targets, x.PlainClasses)
		}
	}
	checkForms(t, r)
}

// nameTokens counts the tokens of CIFAR-100's names without full stops and EOT.
func nameTokens() int {
	n := 0
	for _, c := range clip.CIFAR100 {
		n += len(c.IDs)
	}
	return n
}

func checkForms(t *testing.T, r Report) {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || back.Results[3].Step != r.Results[3].Step {
		t.Errorf("JSON does not give the report back: %v", err)
	}
	table := r.Table()
	for _, want := range []string{"cifar10 ", "cifar100 ", "wanted 15", "wanted 7", "wanted 90", "side by side",
		"exact-null"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not say %q:\n%s", want, table)
		}
	}
	missed := 0
	for _, x := range r.Results {
		for _, g := range x.Targets {
			if g.Got < g.Want {
				missed++
			}
		}
	}
	if len(r.Missed()) != missed {
		t.Errorf("Missed lists %d of %d missed targets", len(r.Missed()), missed)
	}
}

// TestFewerPlainClasses runs the plain form with fewer classes at a time.
func TestFewerPlainClasses(t *testing.T) {
	r, err := Run(context.Background(), quick(Options{Classes: []string{"cifar10"}, Threads: []int{1},
		PlainClasses: 4}))
	if err != nil {
		t.Fatal(err)
	}
	x := r.Results[0]
	if x.PlainClasses != 4 || x.GradientError > 1e-5 || len(r.SideBySide) != 0 {
		t.Errorf("plain step of %d classes, gradients differ by %g, %d comparisons of clients", x.PlainClasses,
			x.GradientError, len(r.SideBySide))
	}
	if !strings.Contains(r.Table(), "4 of 10 classes") {
		t.Error("the table does not say that the plain step took fewer classes")
	}
}

// TestClients: a client's step in a run with other clients equals its step in a run of its own. The step is a
// difference of prompts in float32 that are some hundred times as large.
func TestClients(t *testing.T) {
	o := quick(Options{Classes: []string{"cifar10"}, Threads: []int{1}})
	r, err := Clients(context.Background(), o, []int{1, 3})
	if err != nil || len(r.Results) != 2 {
		t.Fatalf("%d results, %v", len(r.Results), err)
	}
	for i, x := range r.Results {
		if x.Clients != []int{1, 3}[i] || x.Error > 1e-3 || x.Run.Runs == 0 || x.Speedup <= 0 ||
			math.Abs(x.PerSecond*x.Run.Median-float64(x.Clients)) > 1e-9 {
			t.Errorf("%+v", x)
		}
	}
	if !strings.Contains(r.Table(), "client-steps a second") {
		t.Errorf("the table:\n%s", r.Table())
	}
	if _, err := Clients(context.Background(), quick(Options{}), []int{0}); err == nil {
		t.Error("a run of no clients was measured")
	}
	// CIFAR-100's classes ten times over, each name once
	if all := slices.Compact(slices.Sorted(slices.Values(thousand().Names()))); len(all) != 1000 {
		t.Errorf("%d classes", len(all))
	}
}

func TestRefuses(t *testing.T) {
	for want, o := range map[string]Options{
		`"cifar20" is not known`: {Classes: []string{"cifar20"}},
		"threads: 0":             {Threads: []int{0}},
		"are -1 and 0":           {Tokens: -1},
		"are 16 and -2":          {Tokens: 16, PlainClasses: -2},
		"needs 92 positions":     {Classes: []string{"cifar10"}, Threads: []int{1}, Tokens: 88, arch: small},
		"a memory limit of 1 bytes on p": {Classes: []string{"cifar10"}, Threads: []int{1}, arch: small,
			Session: ort.Options{MemoryLimit: 1}},
	} {
		if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v instead of an error with %q", err, want)
		}
	}
}

func TestStops(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	o := quick(Options{Progress: func(what string, done, total int) {
		if strings.Contains(what, "threads") && done == 1 {
			stop()
		}
	}})
	if _, err := Run(ctx, o); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("stopped with %v", err)
	}
}

// TestRatio checks ratios computed by hand.
func TestRatio(t *testing.T) {
	a, b := &contestant{seconds: []float64{6, 20, 9}}, &contestant{seconds: []float64{2, 4, 3}}
	if got := ratio(a, b); got != 3 { // 3, 5, 3
		t.Errorf("ratio of turns %v", got)
	}
	slow := &contestant{seconds: []float64{30, 80}}
	fast := &contestant{seconds: []float64{3, 9, 1, 4, 2, 5}} // medians 3 and 4
	if got := ratio(slow, fast); got != 15 {                  // 10, 20
		t.Errorf("ratio of rounds %v", got)
	}
	if got := summary([]float64{4, 1, 3, 2}); got != (Timing{2.5, 1, 4, 4}) {
		t.Errorf("summary %+v", got)
	}
}

// TestInterleave checks the order of turns.
func TestInterleave(t *testing.T) {
	var order []string
	c := func(name string, slow bool) *contestant {
		return &contestant{what: name, slow: slow, run: func(context.Context) error {
			order = append(order, name)
			return nil
		}}
	}
	a, b, s := c("a", false), c("b", false), c("s", true)
	if err := interleave(context.Background(), "", func(string, int, int) {}, 2, 2, a, b, s); err != nil {
		t.Fatal(err)
	}
	if want := strings.Split("a b s a b s a b s a b a b s a b", " "); !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if len(a.seconds) != 4 || len(s.seconds) != 2 {
		t.Errorf("%d and %d times", len(a.seconds), len(s.seconds))
	}
}

// BenchmarkStep measures the step of a federation at ViT-B/16 size.
func BenchmarkStep(b *testing.B) {
	o, err := Options{}.complete()
	if err != nil {
		b.Fatal(err)
	}
	t, remove, err := openTower(o)
	if err != nil {
		b.Fatal(err)
	}
	defer remove()
	for _, set := range sets {
		b.Run(set.name, func(b *testing.B) {
			s, err := promptFL(t, set.classes.Names(), o.Tokens, ort.Options{Prepack: true}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.close()
			if err := s.run(context.Background()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := s.run(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(s.flops(t)/(b.Elapsed().Seconds()/float64(b.N))/1e9, "GFLOP/s")
		})
	}
}
