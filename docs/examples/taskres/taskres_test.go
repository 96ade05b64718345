package taskres_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "example.com/taskres"

	"promptfed/federation/methodtest"
)

type options = map[string]any

// TestSuite runs promptfed's suite: gradients, workers, messages, resume, a lost client, the trace, terms, aggregation.
func TestSuite(t *testing.T) {
	names := methodtest.Names{Shared: []string{"residual"}}
	for _, c := range []methodtest.Case{
		{Name: "taskres", Alike: true, Names: names},
		{Name: "taskres", Options: options{"alpha": 2.0}, Alike: true, Names: names},
		{Name: "taskres", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Alike: true, Names: names},
	} {
		t.Run(c.Label(), func(t *testing.T) {
			t.Parallel()
			methodtest.Run(t, c)
		})
	}
}

// Two rounds by hand (methodtest.HandExample has the toy). The hand-written prompts are h = (1,1)/√2 and (1,-1)/√2.
//
// Client 0's image (0.6,0.8) of class 0 has the scores 0.7√2 and -0.1√2, so its loss is ln(1+e^-z), z = 0.8√2.
// A residual moves a score along f - (f·h)h, here (-0.1,0.1) and (0.7,0.7), times alpha 0.5.
// So the slopes are p/20 (1,-1) and 0.35 p (1,1), p = 1/(1+e^z).
//
// Client 1's image (0.8,0.6) of class 1 has z = 0.6√2, loss ln(1+e^z) and the directions (0.1,-0.1) and (0.7,0.7):
// q/20 (1,-1) and -0.35 q (1,1), q = 1/(1+e^-z).
func TestTwoRoundsByHand(t *testing.T) {
	p, q := 1/(1+math.Exp(0.8*math.Sqrt2)), 1/(1+math.Exp(-0.6*math.Sqrt2))
	mean := -(p - 2*q) * 0.35 / 3 // of class 1, in both directions, with lr 1
	methodtest.HandExample{Method: "taskres", LR: 1,
		Want: map[string]float64{"r0/c0/s0/loss": -math.Log(1 - p), "r0/c1/s0/loss": -math.Log(1 - q),
			"r0/c0/s0/grad/residual#0": p / 20, "r0/c0/s0/grad/residual#1": -p / 20,
			"r0/c0/s0/grad/residual#2": 0.35 * p, "r0/c1/s0/grad/residual#1": -q / 20,
			"r0/c1/upload/residual#3": 0.35 * q, "r0/merged/residual#0": -(p + 2*q) / 60,
			"r0/merged/residual#2": mean, "r1/c0/begin/residual#3": mean}}.Check(t)
}

const config = `
name: taskres
method: taskres
backbones: [tiny-vit-b16]
data: {set: synthetic,
  generator: {classes: [circle, square, star, house], domains: [neon], train: 6, test: 4, size: 32}}
partition: {kind: dirichlet, clients: 4, beta: 1}
train: {rounds: 5, lr: 0.05, epochs: 2, batch: 8}
`

// TestCommand builds the command with the methods of this module and trains with it: as it is, with secure aggregation,
// and under differential privacy, of which both ask whether a server can make do with the mean.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "promptfed"), filepath.Join(dir, "taskres.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	call := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	call("go", "build", "-o", program, "./cmd/promptfed")
	if out := call(program, "list", "methods", "taskres"); !strings.Contains(out, "taskres: TaskRes\n") {
		t.Errorf("taskres is not listed:\n%s", out)
	}
	for what, more := range map[string][]string{
		"plain":  nil,
		"secure": {"--set", "secure_aggregation.threshold=0.75"},
		"dp":     {"--set", "with=[dp]", "--set", "options.noise=0.1", "--set", "options.delta=0.001"},
	} {
		out := filepath.Join(dir, what)
		call(program, append([]string{"run", file, "--out", out}, more...)...)
		text, err := os.ReadFile(filepath.Join(out, "rounds.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var losses []float64
		for line := range strings.Lines(string(text)) {
			var round struct{ Loss float64 }
			if err := json.Unmarshal([]byte(line), &round); err != nil {
				t.Fatal(err)
			}
			losses = append(losses, round.Loss)
		}
		if n := len(losses); n != 5 || !(losses[n-1] < losses[0]-0.05) {
			t.Errorf("%s: the losses of the rounds are %v; expected five that fall", what, losses)
		}
	}
}
