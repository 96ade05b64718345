package program

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Every command of docs/grad.md works in a checkout, and the file of its example computes PyTorch's gradient.
func TestGradPage(t *testing.T) {
	root, home := goldentest.Module(t), t.TempDir()
	goldentest.NoError(t, os.Symlink(filepath.Join(root, "runtime"), filepath.Join(home, "runtime")))
	commands := 0
	for line := range strings.Lines(string(read(t, root, "docs/grad.md"))) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "bin/promptfed ")
		if !ok || !strings.HasPrefix(line, "    ") {
			continue
		}
		commands++
		cmd := exec.Command(programs.Promptfed, strings.Fields(args)...)
		cmd.Dir = home
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	if commands != 3 {
		t.Fatalf("docs/grad.md shows %d commands", commands)
	}
	want := orttest.Golden(t, filepath.Join(root, "runtime/grad/testdata/exported/convnext.safetensors"))
	if strings.Contains(string(read(t, home, "convnext-gradient.onnx")), "com.microsoft") {
		t.Error("the gradient has operators that are not ONNX's")
	}
	s, err := ort.Open(filepath.Join(home, "convnext-gradient.onnx"), ort.Options{})
	goldentest.NoError(t, err)
	defer s.Close()
	got, err := s.Run(context.Background(), tensor.Map{"x": want["x"], "cotangent/y": want["c"]})
	goldentest.NoError(t, err)
	orttest.CheckClose(t, "grad/x", got["grad/x"], want["grad"])
}
