//go:build unix

package signals

import (
	"os"
	"syscall"
)

// finishSignals end a run after its round.
var finishSignals = []os.Signal{syscall.SIGUSR1}
