package ort_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// probes are what this test binary does as a program of its own, by the value of PROMPTFED_TEST_ORT_PROBE.
var probes = map[string]func(){
	"find": func() {
		path, err := ort.FindLibrary()
		fmt.Print(path)
		if err != nil {
			fmt.Print(err)
		}
	},
	"cuda":     func() { ort.ChooseProvider(cuda); load() },
	"kernels":  func() { cuda.Kernels(); load() },
	"numerics": func() { cuda.Fingerprint(); load() },
	"load":     load,
}

var cuda = ort.Options{Provider: ort.CUDA}

func load() {
	path, version, err := ort.Library()
	fmt.Print(path, " ", version, " ", err)
}

func TestMain(m *testing.M) {
	if p := probes[os.Getenv("PROMPTFED_TEST_ORT_PROBE")]; p != nil {
		p()
		return
	}
	os.Exit(m.Run())
}

// probe runs a copy of this binary with only the given environment.
func probe(t *testing.T, what, exe, dir string, env ...string) string {
	t.Helper()
	c := exec.Command(exe)
	c.Dir, c.Env = dir, append([]string{"PROMPTFED_TEST_ORT_PROBE=" + what, "HOME=" + t.TempDir()}, env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func install(t *testing.T, from, to string) string {
	t.Helper()
	filetest.Folder(t, filepath.Dir(to))
	r, err := os.Open(from)
	goldentest.NoError(t, err)
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	goldentest.NoError(t, err)
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	goldentest.NoError(t, w.Close())
	return to
}

func TestFindLibrary(t *testing.T) {
	library, version, err := ort.Library()
	goldentest.NoError(t, err)
	t.Logf("ONNX Runtime %s", version)
	library, err = filepath.Abs(library)
	goldentest.NoError(t, err)
	self, err := os.Executable()
	goldentest.NoError(t, err)
	base := t.TempDir()
	exe, empty := install(t, self, filepath.Join(base, "prog", "promptfed")), t.TempDir()
	const name = "libonnxruntime.so.1"

	missing := probe(t, "find", exe, empty)
	for _, part := range []string{name, filepath.Join(base, "prog"), "the system's loader", "make build",
		ort.LibraryVariable} {
		if !strings.Contains(missing, part) {
			t.Errorf("%q lacks %q", missing, part)
		}
	}
	if strings.Contains(missing, "\n") {
		t.Errorf("several lines: %q", missing)
	}

	loader := t.TempDir()
	symlink(t, library, filepath.Join(loader, name))
	if got := probe(t, "load", exe, empty, "LD_LIBRARY_PATH="+loader); got != name+" "+version+" <nil>" {
		t.Errorf("through the loader: %q", got)
	}
	cache := t.TempDir()
	cached := filepath.Join(cache, "promptfed", name)
	symlink(t, library, cached)
	if got := probe(t, "find", exe, empty, "XDG_CACHE_HOME="+cache, "LD_LIBRARY_PATH="+loader); got != cached {
		t.Errorf("in the cache: %q", got)
	}
	checkout := t.TempDir()
	built := filepath.Join(checkout, "bin", name)
	symlink(t, library, built)
	for dir, module := range map[string]string{"": "promptfed", "a/b": "other"} {
		filetest.Folder(t, checkout, dir, "c")
		filetest.Write(t, filepath.Join(checkout, dir, "go.mod"), []byte("// head\nmodule "+module+"\n\ngo 1.26\n"))
	}
	if got := probe(t, "find", exe, filepath.Join(checkout, "a", "b", "c"), "XDG_CACHE_HOME="+cache); got != built {
		t.Errorf("in the checkout: %q", got)
	}
	for _, place := range []string{filepath.Join(base, "lib", "promptfed", name),
		filepath.Join(base, "prog", "lib", name), filepath.Join(base, "prog", name)} {
		symlink(t, library, place)
		if got := probe(t, "find", exe, checkout, "XDG_CACHE_HOME="+cache); got != place {
			t.Errorf("beside the executable: %q, want %q", got, place)
		}
	}
	gpu := filepath.Join(base, "prog", "cuda", name)
	symlink(t, library, gpu)
	for _, first := range []string{"cuda", "kernels", "numerics"} {
		if got := probe(t, first, exe, checkout); !strings.HasPrefix(got, gpu+" ") {
			t.Errorf("for CUDA, %s first: %q, want %q", first, got, gpu)
		}
	}
	if got := probe(t, "find", exe, checkout); got != filepath.Join(base, "prog", name) {
		t.Errorf("for the CPU beside one for CUDA: %q", got)
	}
	named := filepath.Join(loader, name)
	if got := probe(t, "find", exe, checkout, ort.LibraryVariable+"="+named); got != named {
		t.Errorf("named: %q", got)
	}
	bad := filepath.Join(empty, "no.so")
	filetest.Write(t, bad, "not a library")
	for path, part := range map[string]string{filepath.Join(empty, "gone"): "correct or unset it",
		empty: "names the folder", bad: "ONNX Runtime 1.24 or later"} {
		got := probe(t, "load", exe, checkout, ort.LibraryVariable+"="+path)
		if !strings.Contains(got, path) || !strings.Contains(got, part) || !strings.Contains(got, ort.LibraryVariable) {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func TestMissingLibraryIsTold(t *testing.T) {
	t.Setenv(ort.LibraryVariable, filepath.Join(t.TempDir(), "gone"))
	if _, err := ort.FindLibrary(); !errors.Is(err, ort.ErrNoLibrary) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
