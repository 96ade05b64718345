package promptfolio_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "example.com/promptfolio"

	"promptfed/federation/methodtest"
)

type options = map[string]any

// TestSuite runs promptfed's suite: gradients, workers, messages, resume, a lost client, the trace, terms, aggregation.
func TestSuite(t *testing.T) {
	both := methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}}
	small := options{"tokens": 3, "init_std": 0.4}
	for _, c := range []methodtest.Case{
		{Name: "promptfolio", Options: small, Names: both},
		{Name: "promptfolio", Options: options{"tokens": 2, "theta": 1.0, "position": "front"}, Names: both},
		{Name: "promptfolio", With: []string{"fedprox"}, Options: small, Zero: options{"mu": 0.0}, Names: both},
	} {
		t.Run(c.Label(), func(t *testing.T) {
			t.Parallel()
			methodtest.Run(t, c)
		})
	}
}

// Two rounds by hand (methodtest.Hand has the toy). From global = local = 0 with theta 0.4 the two scores of an image
// (x,y) differ by z = 2y (0.6 g/r_g + 0.4 l/r_l), so that dz/dg = 1.2 y and dz/dl = 0.8 y. At z = 0 the slopes of the
// losses ln(1+e^-z) of client 0 (y = 0.8) are -0.48 and -0.32, those of ln(1+e^z) of client 1 (y = 0.6) 0.36 and 0.24.
// With lr 0.9375 client 0 ends with 0.45 and 0.3, client 1 with -0.3375 and -0.225; the mean of the global ones by 1
// and 2 examples is -0.075.
func TestTwoRoundsByHand(t *testing.T) {
	z := 1.6 * (0.6*-0.075/math.Hypot(1, 0.075) + 0.4*0.3/math.Hypot(1, 0.3))
	methodtest.Hand{Method: "promptfolio", Options: options{"tokens": 1}, LR: 0.9375,
		First: map[string]float64{"global": 0, "c0/local": 0, "c1/local": 0},
		Want: map[string]float64{"r0/c0/upload/global": 0.45, "r0/c1/upload/global": -0.3375,
			"r0/merged/global": -0.075, "r0/c0/s0/after/local": 0.3, "r0/c1/s0/after/local": -0.225,
			"r1/c0/begin/local": 0.3, "r1/c0/s0/loss": math.Log(1 + math.Exp(-z))}}.Check(t)
}

const config = `
name: folio
method: promptfolio
options: {tokens: 4}
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
	program, file := filepath.Join(dir, "promptfed"), filepath.Join(dir, "folio.yaml")
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
	if out := call(program, "list", "methods", "promptfolio"); !strings.Contains(out, "promptfolio: PromptFolio\n") {
		t.Errorf("promptfolio is not listed:\n%s", out)
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
