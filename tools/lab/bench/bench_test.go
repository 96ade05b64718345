package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/models/clip"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// small is a text tower whose steps take milliseconds.
var small = clip.TextArch{Width: 32, Layers: 3, Heads: 2, Context: 77, EmbedDim: 16}

func quick(o Options) Options {
	o.Quick, o.arch = true, small
	return o
}

// cell returns a number of a report: of a Timing its median.
func cell(t *testing.T, r Report, table, row int, column string) float64 {
	t.Helper()
	i := slices.Index(r.Tables[table].Columns, column)
	if i < 0 {
		t.Fatalf("no column %q in %q", column, r.Tables[table].Columns)
	}
	switch v := r.Tables[table].Rows[row][i].(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case Number:
		return v.Value
	case Timing:
		if !(0 < v.Min && v.Min <= v.Median && v.Median <= v.Max) || v.Runs == 0 {
			t.Errorf("%s of row %d is %+v", column, row, v)
		}
		return v.Median
	}
	t.Fatalf("%s of row %d is no number", column, row)
	return 0
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
	r, err := Measure(context.Background(), o, Run)
	goldentest.NoError(t, err)
	for what, ended := range seen {
		if !ended {
			t.Errorf("progress of %q never ended", what)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "promptfed*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if len(r.Tables) != 3 || len(r.Tables[0].Rows) != 4 || len(r.Tables[1].Rows) != 2 || len(r.Tables[2].Rows) != 5 ||
		len(r.Targets) != 8 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []struct {
		classes string
		threads float64
	}{{"cifar10", 1}, {"cifar10", 2}, {"cifar100", 1}, {"cifar100", 2}} {
		if r.Tables[0].Rows[i][0] != want.classes || cell(t, r, 0, i, "threads") != want.threads {
			t.Errorf("row %d is %v, want %v", i, r.Tables[0].Rows[i], want)
		}
		if v := cell(t, r, 0, i, "gradients differ"); v > 1e-5 {
			t.Errorf("%s: gradients of step and plain step differ by %g", want.classes, v)
		}
		for _, name := range resultColumns[2 : len(resultColumns)-3] {
			if v := cell(t, r, 0, i, name); !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("%s: %s is %v", want.classes, name, v)
			}
		}
		if faster, rate := r.Targets[2*i], r.Targets[2*i+1]; faster.Got != cell(t, r, 0, i, "faster") ||
			rate.Got != cell(t, r, 0, i, "of GEMM") || faster.Met != (faster.Got >= faster.Want) {
			t.Errorf("%s: targets %+v and %+v", want.classes, faster, rate)
		}
	}
	checkForms(t, r)
}

// Rows: SOS and 16 prompt tokens, and each class's name tokens, full stop and EOT. CIFAR-10's names are one token each;
// CIFAR-100's are 117 tokens, as openai/CLIP's simple_tokenizer cuts them.
func TestRows(t *testing.T) {
	tower, err := randomTower("random", small, clip.VisionArch{}, t.TempDir())
	goldentest.NoError(t, err)
	names := 0
	for _, c := range clip.CIFAR100 {
		names += len(c.IDs)
	}
	for want, classes := range map[int]clip.NamedClasses{17 + 10*3: clip.CIFAR10, 17 + names + 200: clip.CIFAR100} {
		s, err := promptFL(tower, classes.Names(), ort.Options{}, nil)
		goldentest.NoError(t, err)
		defer s.close()
		if s.rows != want {
			t.Errorf("%d rows, want %d", s.rows, want)
		}
	}
}

func checkForms(t *testing.T, r Report) {
	t.Helper()
	raw := goldentest.JSON(t, r)
	var back struct {
		Tables []struct {
			Columns []string
			Rows    [][]any
		}
	}
	if err := json.Unmarshal(raw, &back); err != nil || len(back.Tables) != 3 ||
		back.Tables[0].Rows[3][4] != cell(t, r, 0, 3, "faster") {
		t.Errorf("JSON does not give the report back: %v", err)
	}
	text := r.Text()
	goldentest.Contains(t, text, "cifar10 ", "cifar100 ", "of cifar10, threads 1", "side by side", "exact-null",
		"10 of 100 classes")
	r.Targets = []Target{{"steps", 7, 8.25, true}, {"rate", 90, 12, false}}
	for _, line := range []string{`steps +8\.25 +7 +met`, `rate +12 +90 +missed`} {
		if !regexp.MustCompile(line).MatchString(r.Text()) {
			t.Errorf("the text does not say %q:\n%s", line, r.Text())
		}
	}
}

// TestClients: a client's step in a run with other clients equals its step in a run of its own. The step is a
// difference of prompts in float32 that are some hundred times as large.
func TestClients(t *testing.T) {
	o := quick(Options{Classes: []string{"cifar10"}, Threads: []int{1}, Clients: []int{1, 3}})
	r, err := Measure(context.Background(), o, Clients)
	if err != nil || len(r.Tables[0].Rows) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, clients := range []float64{1, 3} {
		seconds := cell(t, r, 0, i, "ms a run (min-max)")
		if cell(t, r, 0, i, "clients") != clients || cell(t, r, 0, i, "differ") > 1e-3 ||
			cell(t, r, 0, i, "faster") <= 0 ||
			math.Abs(cell(t, r, 0, i, "client-steps a second")*seconds-clients) > 1e-9 {
			t.Errorf("%+v", r.Tables[0].Rows[i])
		}
	}
	if _, err := Measure(context.Background(), quick(Options{Clients: []int{0}}), Clients); err == nil {
		t.Error("a run of no clients was measured")
	}
	// CIFAR-100's classes ten times over, each name once
	if all := slices.Compact(slices.Sorted(slices.Values(thousand().Names()))); len(all) != 1000 {
		t.Errorf("%d classes", len(all))
	}
}

// TestInitial compares the initial weights of the text tower with those of CLIP's code: attn_std = width^-0.5,
// proj_std = attn_std (2 layers)^-0.5, fc_std = (2 width)^-0.5.
func TestInitial(t *testing.T) {
	block := "transformer.resblocks.0."
	for name, want := range map[string]float64{"text_projection": 0.17678, "positional_embedding": 0.01,
		block + "attn.in_proj_weight": 0.17678, block + "attn.out_proj.weight": 0.07217,
		block + "mlp.c_fc.weight": 0.125, block + "mlp.c_proj.weight": 0.07217} {
		shape, ok := small.Shapes()[name]
		mean, std := initial(name, shape, small.Width, small.Layers)
		if !ok || mean != 0 || math.Abs(std-want) > 1e-5 {
			t.Errorf("%s %v: mean %g and standard deviation %g, want %g", name, shape, mean, std, want)
		}
	}
}

func TestRefuses(t *testing.T) {
	short := small
	short.Context = 19
	for want, o := range map[string]Options{
		`"cifar20" is not known`: {Classes: []string{"cifar20"}},
		"threads: 0":             {Threads: []int{0}},
		"needs 20 positions":     {Classes: []string{"cifar10"}, Threads: []int{1}, arch: short},
		"a memory limit of 1 bytes on p": {Classes: []string{"cifar10"}, Threads: []int{1}, arch: small,
			Session: ort.Options{MemoryLimit: 1}},
	} {
		_, err := Measure(context.Background(), o, Run)
		goldentest.WantError(t, err, want)
	}
}

// TestSimulationStops: a simulation that is stopped says so, and closes. One that waits for ever is a deadlock here.
func TestSimulationStops(t *testing.T) {
	w := workload{Clients: 2, Cohort: 1, Train: 2, Test: 1, Batch: 2, TestEvery: 9, Rounds: 9}
	tower, err := randomTower("random", small, clip.VisionArch{}, t.TempDir())
	goldentest.NoError(t, err)
	experiment, err := w.experiment(tower)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		simulation := Options{Workers: 1}.simulate(ctx, experiment, t.TempDir(), true)
		first := simulation.rounds(1)
		stop()
		if second := simulation.rounds(1); err != nil || first != nil || !errors.Is(second, context.Canceled) {
			t.Errorf("%v, the rounds end with %v and %v", err, first, second)
		}
		simulation.close()
	})
}

func TestStops(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	o := quick(Options{Progress: func(what string, done, total int) {
		if strings.Contains(what, "threads") && done == 1 {
			stop()
		}
	}})
	_, err := Measure(ctx, o, Run)
	goldentest.WantErrorOf(t, "stopped", err, context.Canceled.Error())
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
	if got := ratio(fast, slow); math.Abs(got-0.075) > 1e-12 { // 0.1, 0.05
		t.Errorf("ratio of rounds, the other way: %v", got)
	}
	if got := summary([]float64{4, 1, 3, 2}); got != (Timing{2.5, 1, 4, 4}) {
		t.Errorf("summary %+v", got)
	}
}

// TestInterleave checks the order of turns, in virtual time.
func TestInterleave(t *testing.T) {
	synctest.Test(t, testInterleave)
}

func testInterleave(t *testing.T) {
	var order []string
	c := func(name string, slow bool) *contestant {
		return &contestant{what: name, slow: slow, run: func(context.Context) error {
			order = append(order, name)
			return nil
		}}
	}
	a, b, s := c("a", false), c("b", false), c("s", true)
	o := Options{Progress: func(string, int, int) {}}
	goldentest.NoError(t, o.interleave(context.Background(), "", 2, 2, a, b, s))
	if want := strings.Split("a b s a b s a b s a b a b s a b", " "); !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if len(a.seconds) != 4 || len(s.seconds) != 2 {
		t.Errorf("%d and %d times", len(a.seconds), len(s.seconds))
	}
	order, o.Quick = nil, true
	b.run = func(context.Context) error { // its first run takes more than a second
		if order = append(order, "b"); len(order) == 2 {
			busytest.Delay(2 * time.Second)
		}
		return nil
	}
	err := o.interleave(context.Background(), "", 2, 2, a, b)
	if got := strings.Join(order, " "); err != nil || got != "a b a b a b a a b a" {
		t.Errorf("order with a slow run %q, %v", got, err)
	}
}

// BenchmarkStep measures the step of a federation at ViT-B/16 size.
func BenchmarkStep(b *testing.B) {
	t, err := randomTower("random", clip.TextB, clip.VisionArch{}, b.TempDir())
	goldentest.NoError(b, err)
	for _, set := range sets {
		b.Run(set.name, func(b *testing.B) {
			s, err := promptFL(t, set.classes.Names(), ort.Options{Prepack: true}, nil)
			goldentest.NoError(b, err)
			defer s.close()
			goldentest.NoError(b, s.run(context.Background()))
			for b.Loop() {
				goldentest.NoError(b, s.run(context.Background()))
			}
			b.ReportMetric(s.flops/(b.Elapsed().Seconds()/float64(b.N))/1e9, "GFLOP/s")
		})
	}
}

// A device's table has a row for each tower and precision, with rates of batches of 128 images (the CPU stands in for a
// device whose memory is unknown).
func TestDeviceFeatures(t *testing.T) {
	was := pictureSizes
	defer func() { pictureSizes = was }()
	pictureSizes = [][2]int{{40, 40}, {60, 32}}
	m := &Measurement{Options: Options{Quick: true, Session: ort.Options{Provider: ort.CPU, Bind: true, Devices: 2},
		Progress: func(string, int, int) {}}, dir: t.TempDir()}
	goldentest.NoError(t, m.deviceFeatures(t.Context(), nil, 2))
	for name, v := range map[string]clip.VisionArch{
		"vit": {Width: 32, Layers: 2, Heads: 2, Patch: 16, Image: 32, EmbedDim: 16},
		"rn":  {Width: 64, Heads: 1, Stages: []int{1, 1, 1, 1}, Patch: 32, Image: 32, EmbedDim: 8}} {
		m.Tables[0].Rows = nil
		goldentest.NoError(t, m.deviceTower(t.Context(), name, v, 2, m.Tables[0]))
		if got := m.Tables[0].Rows; len(got) != 1 || got[0][0] != name || got[0][1] != "float32" || got[0][2] != 128 {
			t.Errorf("%v", got)
		}
		for _, c := range m.Tables[0].Columns[3:] {
			if v := cell(t, m.Report, 0, 0, c); !(v > 0) || math.IsInf(v, 0) {
				t.Errorf("%s: %s is %v", name, c, v)
			}
		}
	}
}
