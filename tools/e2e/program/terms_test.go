package program

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine/record"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
)

// promptfed terms prints what a run with eval.terms records, leaves no folder, and notes a term with nearly no effect.
func TestTermsCommand(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	conf := filepath.Join(dir, "small.yaml")
	weak := []string{conf, "--set", "with=[fedprox]", "--set", "options.mu=1e-6", "--set", "data.shots=2"}
	text := mustRun(t, append([]string{"terms", "--rounds", "2"}, weak...)...)
	run := filepath.Join(dir, "run")
	report := mustRun(t, append([]string{"run", "--set", "eval.terms=true", "--set", "train.rounds=2", "--set",
		"eval.every=2", "--out", run}, weak...)...)

	first, _, _ := strings.Cut(string(read(t, run, record.RoundsFile)), "\n")
	var r record.Record
	if err := json.Unmarshal([]byte(first), &r); err != nil || len(r.Terms) != 5 {
		t.Fatal(r.Terms, err)
	}
	lines := strings.Split(text, "\n")
	number := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	for _, term := range r.Terms {
		want := []string{term.Name, "all", number(*term.Value), number(term.Norm), number(*term.Relative)}
		found := false
		for _, l := range lines {
			f := strings.Split(strings.Join(strings.FieldsFunc(l, func(r rune) bool { return r == ' ' }), " "), " ")
			if n := len(f) - 7; n > 0 && f[n] == "all" && strings.Join(f[:n], " ") == term.Name {
				found = f[n+1] == want[2] && f[n+3] == want[3] && f[n+5] == want[4]
			}
		}
		if !found {
			t.Errorf("no line with %q:\n%s", want, text)
		}
	}
	note := `small: the gradient of the term "proximal" is below 0.001 of cross entropy's in every round`
	for what, text := range map[string]string{"terms": text, "the run's end": report, "tables.md": string(read(t, run,
		"tables.md")),
		"report.html": strings.ReplaceAll(string(read(t, run, "report.html")), "&#34;", `"`)} {
		if !strings.Contains(strings.ReplaceAll(text, "&#39;", "'"), note) || strings.Contains(text, `term "push"`) {
			t.Errorf("%s has no line %q, or too many", what, note)
		}
	}
	svg := string(read(t, run, "plots", "terms.svg"))
	goldentest.Contains(t, svg, "cross entropy local", "push", "proximal", "Terms of the loss")
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("promptfed terms left a folder")
	}

	both := mustRun(t, "terms", "--rounds", "1", "--short", "--markdown", conf, conf)
	if !strings.Contains(both, "| small | pull | all |") || strings.Contains(both, "| local |") {
		t.Error(both)
	}
}

// The norm of theorem 7 comes from the prompts themselves: with all images in one step of plain gradient descent, the
// server's prompt moves by the rate times the mean gradient over clients, who hold equally many images.
func TestTermsStationarity(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	const rate = 0.5
	sets := []string{"--rounds", "2", "--json"}
	for _, s := range []string{"train.batch=100000", "train.epochs=1", "train.momentum=0", "train.weight_decay=0",
		fmt.Sprintf("train.lr=%g", rate), "partition.kind=iid", "participation=1"} {
		sets = append(sets, "--set", s)
	}
	conf := filepath.Join(dir, "small.yaml")
	var out struct {
		Stationarity []struct {
			Norms      []float64
			MeanSquare float64 `json:"mean_square"`
		}
	}
	text, _, code := call(append([]string{"terms", conf}, sets...)...)
	if err := json.Unmarshal([]byte(text), &out); err != nil || code != done || len(out.Stationarity) != 1 {
		t.Fatalf("exit %d, %v: %s", code, err, text)
	}
	mustRun(t, append([]string{"trace", conf, "--out", filepath.Join(dir, "trace")}, sets...)...)
	m := orttest.Golden(t, filepath.Join(dir, "trace", "trace.safetensors"))
	before, square := m["init/global"], 0.0
	for round, got := range out.Stationarity[0].Norms {
		after := m[fmt.Sprintf("r%d/merged/global", round)]
		step := after.Clone()
		step.Axpy(-1, before)
		if want := step.Norm() / rate; math.Abs(got-want) > 1e-3*want || want == 0 {
			t.Errorf("round %d: norm %g, want %g", round+1, got, want)
		}
		before, square = after, square+got*got/2
	}
	if got := out.Stationarity[0]; len(got.Norms) != 2 || math.Abs(got.MeanSquare-square) > 1e-9 {
		t.Errorf("%+v, want a mean square of %g", got, square)
	}
}

// Terms that would reveal single clients are refused if clients are hidden, with one line and before any work.
func TestTermsAreRefused(t *testing.T) {
	dir := setup(t)
	conf := filepath.Join(dir, "small.yaml")
	for _, hidden := range []string{"with=[dp]", "secure_aggregation.threshold=0.6"} {
		_, text, code := call("run", conf, "--out", filepath.Join(dir, "x"), "--set", "method=promptfl", "--set",
			"options={}", "--set", "eval.terms=true", "--set", hidden)
		if code != usage || !strings.Contains(text, "eval.terms: each client would report") {
			t.Errorf("%s: exit %d, %s", hidden, code, text)
		}
	}
	if _, text, code := call("terms", conf, "--rounds", "0"); code != usage || !strings.Contains(text, "--rounds") {
		t.Errorf("exit %d, %s", code, text)
	}
}

// A text tower of the size of ViT-B/16 works, in place of the backbones of the configuration, with every method that
// needs no image tower.
func TestTermsFullSize(t *testing.T) {
	if testing.Short() {
		t.Skip("it draws 38 million weights")
	}
	dir := setup(t)
	conf := filepath.Join(dir, "small.yaml")
	text := mustRun(t, "terms", conf, "--full-size", "--rounds", "1", "--set", "method=fedpgp", "--set", "options={}",
		"--set", "train.epochs=1", "--set", "participation=0.25", "--set", "data.generator.train=2")
	goldentest.Contains(t, text, "contrastive", "sigma", "cross entropy")
	if _, text, code := call("terms", conf, "--full-size", "--set", "method=fedvpt", "--set",
		"options={}"); code == done || !strings.Contains(text, "does not support prompt tokens") ||
		strings.Count(text, "panic") > 0 {
		t.Errorf("exit %d, %s", code, text)
	}
}
