package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"promptfed/models/clip"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// torchPython is the interpreter of the tests with PyTorch.
var torchPython = cmp.Or(os.Getenv("PROMPTFED_TEST_TORCH"), "/usr/bin/python3")

// TestComparePyTorch: the PyTorch step has our gradient (from its own autograd, in float32: to 1e-4), and takes turns
// with our step.
func TestComparePyTorch(t *testing.T) {
	if err := exec.Command(torchPython, "-c", "import torch, numpy").Run(); err != nil {
		t.Skip("needs Debian's python3-torch")
	}
	t.Chdir("../../..")
	o := quick(Options{Classes: []string{"cifar100"}, Threads: []int{1}, Python: torchPython}) // one to three tokens
	r, err := Measure(context.Background(), o, ComparePyTorch)
	goldentest.NoError(t, err)
	if len(r.Tables[0].Rows) != 1 || len(r.Tables[1].Rows) != 3 || strings.Contains(r.Title, "PyTorch ,") {
		t.Fatalf("%s: %+v", r.Title, r.Tables)
	}
	checkDuel(t, r, 0)
}

// checkDuel checks a row of results that both sides measured.
func checkDuel(t *testing.T, r Report, row int) {
	t.Helper()
	cells := r.Tables[0].Rows[row]
	ours, ok := cells[3].(Timing)
	theirs, also := cells[5].(Timing)
	if !ok || !also || ours.Runs == 0 || theirs.Runs != ours.Runs || cell(t, r, 0, row, "gradients differ") > 1e-4 ||
		!(cell(t, r, 0, row, "ours / PyTorch") > 0) || !(cell(t, r, 0, row, "images/s") > 0) {
		t.Errorf("row %d: %v", row, cells)
	}
}

// TestComparePyTorchOnDevice: with the CPU in place of a device, all workloads have rows in all precisions, and all
// forms of a step have one gradient in float32. Precisions, modes and devices that are not there say so.
func TestComparePyTorchOnDevice(t *testing.T) {
	if err := exec.Command(torchPython, "-c", "import torch, numpy").Run(); err != nil {
		t.Skip("needs Debian's python3-torch")
	}
	t.Chdir("../../..")
	o := quick(Options{Classes: []string{"cifar10"}, Threads: []int{1}, Python: torchPython}) // names of one token
	o.Session.Bind = true
	vit := clip.VisionArch{Width: 64, Layers: 2, Heads: 2, Patch: 16, Image: 32, EmbedDim: 16}
	rn := clip.VisionArch{Width: 256, Heads: 4, Stages: []int{1, 2, 1, 1}, Patch: 32, Image: 32, EmbedDim: 16}
	o.precisions = []string{"float32", "bfloat16"} // which ONNX Runtime has on no CPU
	o.images = map[string]clip.VisionArch{"vit-b16": vit, "rn50": rn}
	r, err := Measure(context.Background(), o, ComparePyTorch)
	goldentest.NoError(t, err)
	measured := 0
	for i, row := range r.Tables[0].Rows {
		if row[2] == "float32" {
			measured++
			checkDuel(t, r, i)
		}
	}
	if measured != 2+1+4 || len(r.Tables[0].Rows) != 2*measured || len(r.Targets) != measured {
		t.Errorf("%d of %d rows are in float32, and %d targets", measured, len(r.Tables[0].Rows), len(r.Targets))
	}
	forms := map[string]int{}
	for i, row := range r.Tables[1].Rows {
		form := fmt.Sprint(row[3], " ", row[4])
		why, failed := row[5].(string)
		switch {
		case row[4] == "graph" || row[2] != "float32" && row[3] == "ours":
			if !failed || !strings.HasPrefix(why, "not measured: ") {
				t.Errorf("%v: measured without a device", row)
			}
		case row[4] == "eager" && row[2] == "float32":
			if failed || cell(t, r, 1, i, "gradients differ") > 1e-4 {
				t.Errorf("%v: differs", row)
			}
			forms[form]++
		}
	}
	if forms["shared eager"] != 2 || forms["published eager"] != 1 || forms["plain eager"] != 5 {
		t.Errorf("forms in float32: %v", forms)
	}
}

func TestComparePyTorchRefuses(t *testing.T) {
	o := quick(Options{Classes: []string{"cifar10"}, Threads: []int{1}})
	for _, x := range []struct {
		where, python string
		words         string
	}{{".", "python3", "checkout"}, {"../../..", "no-such-python", "--python no-such-python"},
		{"../../..", "false", "false -m pip install torch numpy"}} {
		t.Run(x.words, func(t *testing.T) {
			t.Chdir(x.where)
			o.Python = x.python
			_, err := Measure(context.Background(), o, ComparePyTorch)
			goldentest.WantError(t, err, x.words)
		})
	}
}

// TestRivals: what a process had prepared when it ended is prepared again in the next one.
func TestRivals(t *testing.T) {
	script := filetest.Write(t, filepath.Join(t.TempDir(), "rival.sh"), `echo {}; while read verb form mode; do
		case "$verb$ready" in prepare) ready=$form; echo done;; step) echo failed KeyError;; *) echo done 2; esac
	done`)
	start := func() (*opponent, error) { return startOpponent(t.Context(), program{script: script}, "sh") }
	theirs := &rivals{byMode: map[string]*opponent{}, deadline: time.Now().Add(time.Hour), start: start}
	defer theirs.close()
	form, work := &rival{form: "shared", mode: "eager"}, &duel{}
	for range 2 {
		if seconds, err := theirs.step(form, work, "open"); seconds != 2 || err != nil {
			t.Errorf("a step of %v s: %v", seconds, err)
		}
		theirs.byMode["eager"].dead = true
	}
}

// TestCompareSimulator: the simulations of Flower and pfl-research merge our prompt after a round, to 1e-3 of what the
// round changed, and take turns with ours.
func TestCompareSimulator(t *testing.T) {
	for name, packages := range map[string]string{"flower": "torch, flwr, ray", "pfl": "torch, pfl"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() || exec.Command("python3", "-c", "import "+packages).Run() != nil {
				t.Skip("needs " + packages + " in python3")
			}
			dir, err := os.MkdirTemp("", "") // Ray's sockets allow no long path
			goldentest.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			t.Setenv("TMPDIR", dir)
			t.Chdir("../../..")
			o := quick(Options{Rounds: 2, Against: name, Python: "python3"})
			r, err := Measure(context.Background(), o, CompareSimulator)
			goldentest.NoError(t, err)
			for i := range 2 {
				if d := cell(t, r, 0, i, "prompts differ"); !(d > 0 && d < 1e-3) ||
					cell(t, r, 0, i, "ours faster") <= 0 || cell(t, r, 0, i, "our MB") <= 0 ||
					cell(t, r, 0, i, name+" MB") <= 0 {
					t.Errorf("%v", r.Tables[0].Rows[i])
				}
			}
			if cell(t, r, 1, 0, "ours faster") <= 0 || len(r.Targets) != 1 || !strings.Contains(r.Title, "PyTorch") {
				t.Errorf("%s: %v, %v", r.Title, r.Tables[1].Rows, r.Targets)
			}
		})
	}
}

func TestCompareSimulatorRefuses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir("../../..")
	o := quick(Options{Rounds: 1, Python: "false"})
	for name, words := range map[string]string{"flower": "pip install torch 'flwr[simulation]'",
		"pfl": "pip install 'pfl[pytorch]'"} {
		o.Against = name
		_, err := Measure(context.Background(), o, CompareSimulator)
		goldentest.WantError(t, err, "tools/golden/sim_"+name+".py", words)
	}
	o.Rounds = -1
	_, err := Measure(context.Background(), o, CompareSimulator)
	goldentest.WantError(t, err, "rounds", "-1")
}
