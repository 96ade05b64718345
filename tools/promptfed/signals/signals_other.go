//go:build !unix

package signals

import "os"

// finishSignals stop a run after its round. This system has none.
var finishSignals []os.Signal
