package program

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// doctor names the library that it loads, a bundle in a folder, data sets, whole and damaged, and an empty cache.
func TestDoctor(t *testing.T) {
	home, sets := t.TempDir(), t.TempDir()
	for i, name := range []string{"train/cat/0.png", "train/dog/1.png", "test/cat/2.png"} {
		drawImage(t, filepath.Join(sets, name), i)
	}
	tower := absolute(t, "../../../models/bundle/exported/testdata")
	doctor := func(env ...string) (string, error) {
		cmd := exec.Command(programs.Promptfed, "doctor", "--data", sets, "--models", tower)
		cmd.Dir, cmd.Env = home, append(append(os.Environ(), "XDG_CACHE_HOME="+home, "HOME="+home), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := doctor()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	goldentest.Contains(t, out, os.Getenv("ONNXRUNTIME_LIB"), "cores", "cpu", "tiny-vit-b16", "hf-half",
		"features: empty", "image set folder", "2 classes, 2 training and 1 test images", "missing for real images",
		"caltech101, oxfordpets", "missing for CUDA")
	for _, here := range []string{"missing for results", "missing for every run"} {
		if strings.Contains(out, here) {
			t.Errorf("%q is in\n%s", here, out)
		}
	}
	alone := filepath.Join(t.TempDir(), "promptfed") // without bundles
	goldentest.NoError(t, os.Link(programs.Promptfed, alone))
	cmd := exec.Command(alone, "doctor")
	cmd.Dir, cmd.Env = home, append(os.Environ(), "XDG_CACHE_HOME="+home, "HOME="+home, "PROMPTFED_DATA_ROOT=")
	lone, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, lone)
	}
	goldentest.Contains(t, string(lone), "missing for results ", "a folder with image sets",
		"promptfed pull clip-vit-base-patch16")
	filetest.Write(t, filepath.Join(sets, "cifar-10-batches-bin", "data_batch_1.bin"), "\x00")
	out, err = doctor()
	goldentest.NoError(t, err)
	goldentest.Contains(t, out, "missing for image set cifar10 ", "the file is truncated, fetch it again")
	goldentest.NoError(t, os.RemoveAll(sets))
	out, err = doctor("ONNXRUNTIME_LIB=/nowhere.so")
	if err == nil || !strings.Contains(out, sets+": no such file or directory: name another folder with --data") ||
		!strings.Contains(out, "missing for every run") || !strings.Contains(out, "not found or not loadable") ||
		!strings.Contains(out, "/nowhere.so") || !strings.Contains(out, "tiny-vit-b16") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Beside a library for CUDA, doctor describes the numerics of runs on the CPU, as it does without that library.
func TestDoctorWithTwoLibraries(t *testing.T) {
	library := os.Getenv("ONNXRUNTIME_LIB")
	cuda := filepath.Join(filepath.Dir(library), "cuda", "libonnxruntime.so.1")
	if _, err := os.Stat(cuda); err != nil {
		t.Skip("no ONNX Runtime for CUDA:", err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "promptfed")
	if err := errors.Join(os.Link(programs.Promptfed, program), os.Symlink(filepath.Dir(cuda),
		filepath.Join(dir, "cuda")), os.Symlink(library, filepath.Join(dir, filepath.Base(cuda)))); err != nil {
		t.Fatal(err)
	}
	numerics := func(library string) string {
		cmd := exec.Command(program, "doctor", "--json")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ONNXRUNTIME_LIB="+library)
		var out struct{ Numerics struct{ Digest string } }
		text, err := cmd.Output()
		goldentest.NoError(t, errors.Join(err, json.Unmarshal(text, &out)))
		return out.Numerics.Digest
	}
	if both, alone := numerics(""), numerics(library); both != alone || both == "" || both == numerics(cuda) {
		t.Errorf("numerics %s beside CUDA, %s without", both, alone)
	}
}
