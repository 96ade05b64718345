package bench

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine/record"
	"promptfed/federation/methods"
)

// TestExperiment runs the quick form: 1 + 2 rounds of Table S5's protocol and the cost of clients.
func TestExperiment(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a few small federations")
	}
	t.Setenv("TMPDIR", t.TempDir())
	r, err := Experiment(context.Background(), ExperimentOptions{Quick: true, Rounds: 2, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	// from the protocol: 20 of 100 clients, and 101 classes
	if r.Clients != 100 || r.Trained != 20 || r.Classes != 101 || r.Images != 6593 || len(r.Rounds) != 3 {
		t.Errorf("%d clients, %d trained, %d classes, %d images, %d rounds", r.Clients, r.Trained, r.Classes, r.Images,
			len(r.Rounds))
	}
	for i, p := range r.Rounds {
		sum := p.Training + p.Statistics + p.Evaluation + p.Server + p.Messages + p.Disk
		if p.Training <= 0 || p.Evaluation <= 0 || p.Messages <= 0 || p.Disk <= 0 || sum > r.Seconds[i]+1e-6 ||
			sum < r.Seconds[i]/2 {
			t.Errorf("round %d of %g s: %+v", i, r.Seconds[i], p)
		}
	}
	pub := r.Published
	if pub.Text <= 0 || pub.TextOnly <= 0 || pub.Training < 20*pub.Text || pub.Evaluation < 100*pub.TextOnly {
		t.Errorf("published form: %+v; 20 clients take a step or more, 100 are tested on a batch or more", pub)
	}
	c := r.Cost
	if c.Clients != 200 || c.Rounds != 20 || c.Trainings != 19*20 || c.OverheadCPU <= 0 || c.NativeSeconds <= 0 ||
		c.Heap[1] <= 0 || math.Abs(c.Overhead*380+c.NativeSeconds-c.Seconds) > 1e-6 ||
		c.OverheadCPU > c.Overhead+c.NativeSeconds/380 {
		t.Errorf("cost of clients: %+v", c)
	}
	for _, want := range []string{"20 train in a round", "evaluation", "published form", "200 clients, 20 rounds"} {
		if !strings.Contains(r.Table(), want) {
			t.Errorf("the table does not say %q:\n%s", want, r.Table())
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "promptfed*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestExperimentMisses checks targets computed by hand.
func TestExperimentMisses(t *testing.T) {
	r := ExperimentReport{Median: record.Phases{Training: 2, Evaluation: 1}, Cost: Cost{OverheadCPU: 0.001}}
	if m := r.Missed(); len(m) != 1 || m[0].Got != 1.5 {
		t.Errorf("missed %+v", m)
	}
	if m := medianPhases([]record.Phases{{Training: 3, Disk: 1}, {Training: 1, Disk: 5}, {Training: 2, Disk: 3}}); m !=
		(record.Phases{Training: 2, Disk: 3}) {
		t.Errorf("medians %+v", m)
	}
}

// TestMethods measures methods of every kind on small towers: with only the text tower, with the image tower, with
// patches, with statistics, a wrapper, and a method without trained parameters.
func TestMethods(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a few small federations")
	}
	t.Setenv("TMPDIR", t.TempDir())
	only := []string{"promptfl", "fedvpt", "fedotp", "gptfl", "zeroshot", "ggtpc"}
	r, err := Methods(context.Background(), MethodsOptions{Quick: true, Only: only})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range r.Steps {
		if only[i] == "zeroshot" {
			if !strings.Contains(s.Error, "learns nothing") {
				t.Errorf("zeroshot: %+v", s)
			}
			continue
		}
		if strings.TrimPrefix(s.Method, "+ ") != only[i] || s.Error != "" || s.Turn.Runs != 6 || s.Products <= 0 ||
			s.Products > 100 || len(s.Operators) != 3 {
			t.Errorf("%s: %+v", only[i], s)
		}
	}
	if !strings.Contains(r.Table(), "+ ggtpc") || len(r.Missed()) > 0 {
		t.Errorf("missed %v:\n%s", r.Missed(), r.Table())
	}
	if _, err := Methods(context.Background(), MethodsOptions{Only: []string{"fedmagic"}}); err == nil {
		t.Error("an unknown method was measured")
	}
	if n, err := methodNames(nil); err != nil || len(n) != len(methods.Table()) {
		t.Errorf("%d of %d methods, %v", len(n), len(methods.Table()), err)
	}
}

// TestProfile reads a handwritten profile of two runs. Only the second run counts, and CUDA leaves Add to the CPU in
// it.
func TestProfile(t *testing.T) {
	node := func(op, us string) string {
		return `{"cat":"Node","name":"x_kernel_time","dur":` + us + `,"args":{"op_name":"` + op +
			`","provider":"` + map[bool]string{true: "CPU", false: "CUDA"}[op == "Add"] + `ExecutionProvider"}}`
	}
	run := `{"cat":"Session","name":"model_run","dur":9,"args":{}}`
	text := "[" + strings.Join([]string{node("MatMul", "700"), run, node("MatMul", "300000"), node("Add", "100000"),
		`{"cat":"Node","name":"x_fence_before","dur":5,"args":{"op_name":"Add"}}`, node("Add", "50000"), run},
		",") + "]"
	prefix := filepath.Join(t.TempDir(), "step")
	if err := os.WriteFile(prefix+"_1.json", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	spent, left, err := readProfiles(prefix, 2)
	if err != nil || math.Abs(spent["MatMul"]-0.3) > 1e-9 || math.Abs(spent["Add"]-0.15) > 1e-9 || len(spent) != 2 ||
		len(left) != 1 || left["Add"] != 2 {
		t.Fatalf("spent %v, left to the CPU %v, %v", spent, left, err)
	}
	var s MethodStep
	s.shares(spent, 0.5) // 60 % products, 30 % Add, 10 % elsewhere
	if math.Abs(s.Products-60) > 1e-9 || len(s.Operators) != 2 || s.Operators[0].What != "Add" ||
		math.Abs(s.Operators[1].Percent-10) > 1e-9 {
		t.Errorf("shares %+v", s)
	}
	if _, _, err := readProfiles(prefix, 2); err != nil {
		t.Errorf("the profile was not removed: %v", err)
	}
}
