package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The modules under docs/examples pass vet and their tests, without a network and without changes of their go.mod.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*", "go.mod"))
	if err != nil || len(files) == 0 {
		t.Fatal("no module under docs/examples", err)
	}
	for _, file := range files {
		for _, verb := range []string{"vet", "test"} {
			cmd := exec.Command("go", verb, "./...")
			cmd.Dir = filepath.Dir(file)
			cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "GOPROXY=off")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("go %s of %s: %v\n%s", verb, cmd.Dir, err, out)
			}
		}
	}
}
