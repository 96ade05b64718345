package proctest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	_ "promptfed/tools/promptfed/command" // kept results of tests are of this state of the program
)

// Programs are the path of promptfed, and the folder in which it and the other programs of tests are.
type Programs struct{ Promptfed, Dir string }

// Main prepares *p, runs the tests of a package below tools/e2e and exits. A TestMain calls it. It builds the programs;
// promptfed is copied from bin of the checkout PROMPTFED_TEST_SMOKE, which has run `make smoke` in the same state, if
// there is one. others are packages of other modules' programs that the tests start; a test that starts one of this
// module contains it, because go test would keep results of its older states.
func Main(suite *testing.M, p *Programs, others ...string) {
	dir, err := os.MkdirTemp("", "promptfed-test")
	if err != nil {
		panic(err)
	}

	*p = Programs{filepath.Join(dir, "promptfed"), dir}
	if made := os.Getenv("PROMPTFED_TEST_SMOKE"); made != "" {
		b, err := os.ReadFile(filepath.Join(made, "bin", "promptfed"))
		if err == nil {
			err = os.WriteFile(p.Promptfed, b, 0o755)
		}
		if err != nil {
			panic(err)
		}
	} else {
		others = append(others, "promptfed/tools/promptfed")
	}

	if len(others) > 0 {
		build := append([]string{"build", "-ldflags", "-s -w", "-o", dir + string(filepath.Separator)}, others...)
		if text, err := exec.Command("go", build...).CombinedOutput(); err != nil {
			os.Stderr.Write(text)
			panic(err)
		}
	}

	if os.Getenv("ONNXRUNTIME_LIB") == "" {
		lib, _ := filepath.Abs("../../../bin/libonnxruntime.so.1")
		os.Setenv("ONNXRUNTIME_LIB", lib)
	}

	os.Setenv("TMPDIR", dir) // a killed program cannot remove its temporary files
	code := suite.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Output collects the output of a process while others read it.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
