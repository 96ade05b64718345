//go:build !unix

package command

import "os"

// finishSignals end a run after its round; there is none here.
var finishSignals []os.Signal
