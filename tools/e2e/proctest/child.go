package proctest

import (
	"os/exec"
	"testing"

	"promptfed/runtime/goldentest"
)

// Child is a program that a test started.
type Child struct {
	*exec.Cmd
	Done   chan struct{} // closed when the program has ended
	Ending error         // of a program that has ended; nil after success
}

// Start starts a program. The test ends it.
func Start(t testing.TB, program *exec.Cmd) *Child {
	t.Helper()
	c := &Child{Cmd: program, Done: make(chan struct{})}
	goldentest.NoError(t, c.Cmd.Start())

	go func() {
		c.Ending = c.Wait()
		close(c.Done)
	}()

	return c
}

// Kill is kill -9. It returns after the end of the program.
func (c *Child) Kill() {
	c.Process.Kill()
	<-c.Done
}

// Ended reports whether the program has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}
