//go:build unix

package signals

import (
	"os"
	"syscall"
)

// finishSignals stop a run after its round.
var finishSignals = []os.Signal{syscall.SIGUSR1}
