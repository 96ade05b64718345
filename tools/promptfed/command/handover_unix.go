//go:build unix

package command

import (
	"os"
	"syscall"
)

// replaceProcess runs a program with the arguments of this process in its place. It returns only an error.
func replaceProcess(path string, env []string) error {
	return syscall.Exec(path, os.Args, env)
}
