package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/e2e/proctest"
)

// programs are the programs that tests start, one for all tests.
var programs proctest.Programs

func TestMain(m *testing.M) { proctest.Main(m, &programs) }

// process is a running program whose output is appended to a file.
type process struct {
	*proctest.Child
	log string
}

func launch(t testing.TB, log string, command ...string) *process {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	goldentest.NoError(t, err)
	defer f.Close()
	c := exec.Command(command[0], command[1:]...)
	c.Stdout, c.Stderr = f, f
	p := &process{proctest.Start(t, c), log}
	t.Cleanup(p.Kill)
	return p
}

// ends waits until the process ends by itself, and fails unless it ended successfully.
func (p *process) ends(t testing.TB) {
	t.Helper()
	busytest.Until(t, fmt.Sprint("the end of ", p.Args), p.Ended)
	if p.Ending != nil {
		t.Errorf("%v: %v\n%s", p.Args, p.Ending, p.tail())
	}
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}
