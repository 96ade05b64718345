package converted_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/goldentest"
)

// environment gives the test its own cache and models path.
func environment(t *testing.T) (cache, models string) {
	t.Helper()
	cache, models = t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv(bundle.ModelsVariable, "/nowhere"+string(os.PathListSeparator)+models)
	return cache, models
}

func TestFind(t *testing.T) {
	_, models := environment(t)
	mine := t.TempDir()
	for _, c := range []struct{ dir, name, folder string }{{models, "alpha", "alpha"}, {models, "beta", "folder"},
		{mine, "alpha-of-mine", "alpha"}} {
		path := filepath.Join(t.TempDir(), c.name)
		_, err := converted.Convert("testdata/huggingface", path, converted.Options{})
		if err == nil {
			err = os.Rename(path, filepath.Join(c.dir, c.folder))
		}
		goldentest.NoError(t, err)
	}
	for _, c := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"alpha", nil, "alpha"}, {"beta", nil, "beta"}, {"folder", nil, "beta"},
		{"alpha", []string{mine}, "alpha-of-mine"}, {filepath.Join(models, "folder"), nil, "beta"},
	} {
		b, err := bundle.Find(c.name, c.paths...)
		if err != nil || b.Name != c.want {
			t.Errorf("Find(%q, %q): %v, want %s", c.name, c.paths, err, c.want)
		}
	}
	for _, name := range []string{"beta", "folder=beta,logit_scale=3"} {
		if r, err := bundle.Inspect(name); err != nil || r.Bundle == nil || r.Path != filepath.Join(models, "folder") {
			t.Errorf("Inspect(%q): %q, %v", name, r.Path, err)
		}
	}
	_, err := bundle.Inspect("gamma")
	goldentest.WantErrorOf(t, "neither a file nor a bundle", err, "stat gamma", `no bundle "gamma"`, "beta")
	_, err = bundle.Find("gamma", mine)
	goldentest.WantErrorOf(t, "unknown", err, `"gamma"`, mine, models, "alpha-of-mine", "beta")
	_, err = bundle.Find(filepath.Join(models, "gone"))
	goldentest.WantErrorOf(t, "a path that is not there", err, "gone", "no such folder")
	var names []string
	for _, e := range bundle.List(mine) {
		names = append(names, e.Name)
	}
	if want := []string{"alpha", "alpha-of-mine", "beta"}; !slices.Equal(slices.DeleteFunc(names, registered), want) {
		t.Errorf("List: %q, want %q", names, want)
	}
}

func registered(name string) bool {
	return strings.HasPrefix(name, "test-") || strings.HasPrefix(name, "tiny-")
}

func init() {
	bundle.RegisterFormat(converted.Format(nil))
	converted.Embed("test-registered", os.DirFS("testdata/huggingface"))
}

// One process of TestRegisteredInTwoProcesses: it opens the registered bundle and prints its folder.
func TestRegisteredChild(t *testing.T) {
	if os.Getenv("PROMPTFED_TEST_CHILD") == "" {
		t.Skip("part of TestRegisteredInTwoProcesses")
	}
	b, err := bundle.Find("test-registered")
	if err == nil {
		err = b.Verify()
	}
	goldentest.NoError(t, err)
	fmt.Println("bundle at", b.WeightsDir())
}

func TestRegisteredInTwoProcesses(t *testing.T) {
	cache, _ := environment(t)
	t.Setenv("PROMPTFED_TEST_CHILD", "1")
	self, err := os.Executable()
	goldentest.NoError(t, err)
	out := make([]string, 4)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			text, err := exec.Command(self, "-test.run=^TestRegisteredChild$").CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, text)
			}
			out[i] = string(text)
		})
	}
	wg.Wait()
	_, after, ok := strings.Cut(out[0], "bundle at ")
	dir, _, _ := strings.Cut(after, "\n")
	if !ok || !strings.HasPrefix(dir, cache) {
		t.Fatalf("no bundle in the cache: %q", out[0])
	}
	for _, o := range out {
		if !strings.Contains(o, "bundle at "+dir+"\n") {
			t.Errorf("another place: %q, want %q", o, dir)
		}
	}
	if list, _ := os.ReadDir(filepath.Dir(dir)); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

// A damaged bundle in the cache is written again.
func TestRegisteredHeals(t *testing.T) {
	environment(t)
	b, err := bundle.Find("test-registered")
	goldentest.NoError(t, err)
	for _, damage := range []func(path string) error{flip, func(path string) error { return os.Truncate(path, 100) }} {
		goldentest.NoError(t, damage(filepath.Join(b.WeightsDir(), "model.safetensors")))
		if b, err = bundle.Find("test-registered"); err != nil {
			t.Fatal(err)
		}
		if err := b.Verify(); err != nil {
			t.Error(err)
		}
	}
	if b.Name != "test-registered" {
		t.Errorf("name %q", b.Name)
	}
}
