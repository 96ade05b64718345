package inspect

import (
	"context"
	"testing"

	"promptfed/runtime/goldentest"
)

func TestBenchRefusesUnknownOpponents(t *testing.T) {
	_, err := benchFlags{against: "python3"}.measure(context.Background())
	goldentest.WantError(t, err, "pytorch, flower or pfl", "--against pytorch --python python3")
}
