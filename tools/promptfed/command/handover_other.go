//go:build !unix

package command

import (
	"errors"
	"os"
	"os/exec"
)

// replaceProcess runs a program with the arguments of this process and exits with its code. It returns an error if the
// program does not start.
func replaceProcess(path string, env []string) error {
	c := exec.Command(path, os.Args[1:]...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	os.Exit(c.ProcessState.ExitCode())
	return nil
}
