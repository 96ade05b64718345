//go:build !unix

package signals

import "os"

// finishSignals end a run after its round; there is none here.
var finishSignals []os.Signal
