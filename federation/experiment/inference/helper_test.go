package inference_test

import (
	"promptfed/federation/data/datatest"
	"promptfed/federation/engine/enginetest"
)

var (
	toy        = enginetest.Toy
	withMethod = enginetest.WithMethod
	mustRun    = enginetest.Run
	says       = datatest.WantError
)
