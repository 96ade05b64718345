package sets

import (
	"testing"

	"promptfed/federation/data"
)

func mustOpen(t testing.TB, cfg Config) *data.Set {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
