package sets

import (
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/settest"
)

func mustOpen(t testing.TB, cfg Config) *data.Set { return settest.MustOpen(t, kinds, cfg) }
