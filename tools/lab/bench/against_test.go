package bench

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
)

// TestComparePyTorch: the PyTorch step has our gradient (from its own autograd, in float32: to 1e-4), and takes turns
// with our step.
func TestComparePyTorch(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import torch, numpy").Run(); err != nil {
		t.Skip("needs Debian's python3-torch")
	}
	t.Chdir("../../..")
	o := quick(Options{Classes: []string{"cifar100"}, Threads: []int{1}}) // names of one to three tokens
	r, err := ComparePyTorch(context.Background(), o, python)
	if err != nil {
		t.Fatal(err)
	}
	rows := r.Tables[0].Rows
	i := slices.IndexFunc(rows, func(row []any) bool { return row[3] == "eager" })
	if i < 0 || strings.HasSuffix(r.Title, "PyTorch :") || cell(t, r, 0, i, "gradients differ") > 1e-4 ||
		cell(t, r, 0, i, "ours faster") <= 0 || rows[i][2].(Timing).Runs == 0 ||
		rows[i][4].(Timing).Runs != rows[i][2].(Timing).Runs {
		t.Errorf("%s: %+v", r.Title, rows)
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
			_, err := ComparePyTorch(context.Background(), o, x.python)
			datatest.WantError(t, err, x.words)
		})
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
			t.Setenv("TMPDIR", t.TempDir())
			t.Chdir("../../..")
			r, err := CompareSimulator(context.Background(), quick(Options{Rounds: 2}), name, "python3")
			if err != nil {
				t.Fatal(err)
			}
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
	o := quick(Options{Rounds: 1})
	for name, words := range map[string]string{"flower": "pip install torch 'flwr[simulation]'",
		"pfl": "pip install 'pfl[pytorch]'"} {
		_, err := CompareSimulator(context.Background(), o, name, "false")
		datatest.WantError(t, err, "tools/golden/sim_"+name+".py", words)
	}
	o.Rounds = -1
	_, err := CompareSimulator(context.Background(), o, "pfl", "false")
	datatest.WantError(t, err, "rounds", "-1")
}
