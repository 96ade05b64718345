package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"promptfed/runtime/goldentest"
)

// The modules under docs/examples load as they are, without a network and without changes of their go.mod, and pass vet
// and their tests. These run in a workspace, in which promptfed is the same compiled packages as for other tests.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*", "go.mod"))
	if err != nil || len(files) == 0 {
		t.Fatal("no module under docs/examples", err)
	}
	for _, file := range files {
		dir, err := filepath.Abs(filepath.Dir(file))
		goldentest.NoError(t, err)
		call := func(work, dir string, args ...string) {
			cmd := exec.Command("go", args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOWORK="+work, "GOPROXY=off",
				"GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("go %v of %s: %v\n%s", args, dir, err, out)
			}
		}
		work := filepath.Join(t.TempDir(), "go.work")
		call("off", dir, "list", "-deps", "-test", "./...")
		call(work, filepath.Dir(work), "work", "init", filepath.Join(dir, "..", "..", ".."), dir)
		call(work, dir, "vet", "./...")
		call(work, dir, "test", "./...")
	}
}
