package engine_test

import (
	"promptfed/federation/engine/enginetest"
	"promptfed/runtime/goldentest"
)

var (
	toy         = enginetest.Toy
	withMethod  = enginetest.WithMethod
	buildMethod = enginetest.Build
	mustRun     = enginetest.Run
	refused     = enginetest.Refused
	prompts     = enginetest.Prompts
	says        = goldentest.WantError
)
