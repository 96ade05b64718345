package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// doctor names the library that it loads, a bundle in a folder, a data set, and an empty cache.
func TestDoctor(t *testing.T) {
	home, sets := t.TempDir(), t.TempDir()
	for i, name := range []string{"train/cat/0.png", "train/dog/1.png", "test/cat/2.png"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(sets, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		drawImage(t, filepath.Join(sets, name), i)
	}
	tower, err := filepath.Abs("../../../models/bundle/exported/testdata")
	if err != nil {
		t.Fatal(err)
	}
	doctor := func(env ...string) (string, error) {
		cmd := exec.Command(program, "doctor", "--data", sets, "--models", tower)
		cmd.Dir, cmd.Env = home, append(append(os.Environ(), "XDG_CACHE_HOME="+home, "HOME="+home), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := doctor()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{library(), "cores", "cpu", "tiny-vit-b16", "hf-half", "features: empty",
		"image set folder", "2 classes, 2 training and 1 test images"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, err = doctor("ONNXRUNTIME_LIB=/nowhere.so")
	if err == nil || !strings.Contains(out, "not found or not loadable") ||
		!strings.Contains(out, "/nowhere.so") || !strings.Contains(out, "tiny-vit-b16") {
		t.Errorf("%v\n%s", err, out)
	}
}
