package inspect

import (
	"context"
	"testing"

	"promptfed/federation/data/datatest"
)

func TestBenchRefusesUnknownOpponents(t *testing.T) {
	_, err := benchFlags{against: "python3"}.measure(context.Background())
	datatest.WantError(t, err, "pytorch, flower or pfl", "--against pytorch --python python3")
}
