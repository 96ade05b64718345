package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"promptfed/runtime/ort"
)

// An unavailable provider is one line and exit code 1 in every command that computes, and changes nothing: a run to
// resume stays as it is. Auto chooses the CPU and prints that, during the run and in the summary.
func TestAbsentProvider(t *testing.T) {
	if _, _, err := ort.ChooseProvider(ort.Options{Provider: ort.CUDA}); err == nil {
		t.Skip("this library has a CUDA provider")
	}
	dir := setup(t)
	config, out := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "out")
	files := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{"config.yaml", "rounds.jsonl", "summary.json", "prompts.safetensors"} {
			all[name] = string(read(t, out, name))
		}
		return all
	}
	_, stderr, code := call("run", config, "--set", "train.rounds=1", "--set", "runtime.provider=auto", "--out", out)
	if code != 0 || !strings.Contains(stderr, "small, seed 1: runs on the CPU (runtime.provider: auto): ort: "+
		"provider cuda is not available") {
		t.Errorf("auto: exit %d, %q", code, stderr)
	}
	before := files()
	var summary struct{ Provider string }
	if err := json.Unmarshal([]byte(before["summary.json"]), &summary); err != nil ||
		!strings.HasPrefix(summary.Provider, "cpu: ort: provider cuda is not available") {
		t.Errorf("summary: provider %q, %v", summary.Provider, err)
	}
	if !strings.Contains(before["config.yaml"], "provider: auto") {
		t.Error("config.yaml does not keep provider auto")
	}
	image := filepath.Join("..", "..", "..", "models", "preprocess", "testdata", "colour.jpg")
	cuda := []string{"--set", "runtime.provider=cuda"}
	for _, args := range [][]string{
		{"run", config, "--set", "train.rounds=2", "--out", out, "--resume"},
		{"run", config, "--out", filepath.Join(dir, "new")},
		{"features", config},
		{"trace", config, "--rounds", "1", "--out", filepath.Join(dir, "trace")},
		{"predict", out, "--client", "0", image},
		{"export", out, "--client", "0", "--out", filepath.Join(dir, "x.onnx")},
		{"bench", "--quick"},
	} {
		stdout, stderr, code := call(append(args, cuda...)...)
		if code != failed || stdout != "" || strings.Count(strings.TrimSpace(stderr), "\n") != 0 ||
			!strings.Contains(stderr, "provider cuda is not available in") || !strings.Contains(stderr,
			"or use provider cpu") {
			t.Errorf("%s: exit %d, output %q, errors %q", args[0], code, stdout, stderr)
		}
	}
	for name, text := range files() {
		if before[name] != text {
			t.Errorf("%s changed", name)
		}
	}
	for _, gone := range []string{"new/config.yaml", "trace", "x.onnx"} {
		if _, err := os.Stat(filepath.Join(dir, gone)); err == nil {
			t.Errorf("%s was written", gone)
		}
	}
	if _, stderr, code := call("predict", out, "--client", "0", "--set", "train.lr=1", image); code != usage ||
		!strings.Contains(stderr, "only keys under runtime") {
		t.Errorf("another key: exit %d, %q", code, stderr)
	}
	if _, stderr, code := call("bench", "--set", "runtime.prepack=maybe"); code != usage || !strings.Contains(stderr,
		"use auto, true or false") {
		t.Errorf("a wrong value: exit %d, %q", code, stderr)
	}
	if _, stderr, code := call("bench", "--svd", "--methods"); code != usage || !strings.Contains(stderr,
		"--methods and --svd are different measurements") {
		t.Errorf("two measurements: exit %d, %q", code, stderr)
	}
}

// Every operator of the graphs of a bundle runs on the CPU, including our own. For an unavailable provider inspect
// prints the library in use and fails with one line.
func TestInspectProvider(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bundle")
	mustRun(t, "convert", filepath.Join("..", "..", "..", "models", "tiny", "tiny-vit-b16"), "--out", dir)
	stdout := mustRun(t, "inspect", dir, "--provider", "cpu")
	for _, want := range []string{`provider cpu +runs`, `image tower on cpu +\d{2,} operators`,
		`training step on cpu +\d{2,} operators`} {
		if !regexp.MustCompile(want).MatchString(stdout) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "on cuda") || strings.Contains(stdout, "not run by") {
		t.Errorf("another provider on the CPU:\n%s", stdout)
	}
	if _, _, code := call("inspect", filepath.Join("..", "..", "..", "models", "tiny", "merges.txt"), "--provider",
		"cpu"); code != failed {
		t.Errorf("a vocabulary: exit code %d", code)
	}
	if _, _, err := ort.ChooseProvider(ort.Options{Provider: ort.CUDA}); err == nil {
		t.Skip("this library has a CUDA provider")
	}
	stdout, stderr, code := call("inspect", "--provider", "cuda")
	if code != failed || !strings.Contains(stdout, "ONNX Runtime") || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, "provider cuda is not available in") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}
