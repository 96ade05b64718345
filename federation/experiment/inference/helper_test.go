package inference_test

import (
	"promptfed/federation/engine/enginetest"
	"promptfed/runtime/goldentest"
)

var (
	toy        = enginetest.Toy
	withMethod = enginetest.WithMethod
	mustRun    = enginetest.Run
	says       = goldentest.WantError
)
