package bench

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
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
	_, err := ComparePyTorch(context.Background(), o, "python3")
	if err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Errorf("without the script: %v", err)
	}
	t.Chdir("../../..")
	if _, err := ComparePyTorch(context.Background(), o, "no-such-python"); err == nil ||
		!strings.Contains(err.Error(), "--against no-such-python") {
		t.Errorf("without a Python: %v", err)
	}
	if _, err := ComparePyTorch(context.Background(), o, "false"); err == nil ||
		!strings.Contains(err.Error(), "PyTorch and NumPy") {
		t.Errorf("without PyTorch: %v", err)
	}
}
