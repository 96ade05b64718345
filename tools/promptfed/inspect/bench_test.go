package inspect

import (
	"context"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/bench"
)

func TestBenchRefusesUnknownOpponents(t *testing.T) {
	_, err := benchFlags{Options: bench.Options{Against: "python3"}}.measure(context.Background())
	goldentest.WantError(t, err, "pytorch, flower or pfl", "--against pytorch --python python3")
}
