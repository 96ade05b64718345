package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// tools/test-cuda.sh run says by its exit status whether all tests passed, and leaves no files of its own.
func TestCUDAScriptEnds(t *testing.T) {
	for want, code := range map[string]int{"pass": 0, "fail": 1} {
		from, work := t.TempDir(), t.TempDir()
		bin := filetest.Folder(t, from, "bin")
		filetest.Write(t, filepath.Join(from, "tests"), "a/toy toy TestToy\n")
		for name, says := range map[string]string{"toy.test": `echo '{"Action":"` + want + `"}'`, "test2json": "cat"} {
			goldentest.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+says+"\n"), 0o700))
		}
		c := exec.Command("../test-cuda.sh", "run", from, filepath.Join(from, "out.json"))
		c.Env = append(os.Environ(), "TMPDIR="+work)
		out, _ := c.CombinedOutput()
		left, err := os.ReadDir(work)
		if c.ProcessState.ExitCode() != code || err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %d files left (%v): %s", want, c.ProcessState, len(left), err, out)
		}
	}
}
