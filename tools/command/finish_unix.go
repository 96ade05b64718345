//go:build unix

package command

import (
	"os"
	"syscall"
)

// finishSignals end a run after its round.
var finishSignals = []os.Signal{syscall.SIGUSR1}
