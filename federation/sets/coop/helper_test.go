package coop

import (
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/sets/settest"
	"promptfed/federation/sets/source"
)

func openSet(cfg source.Config) (*data.Set, error) {
	return source.OpenIn(append(Kinds, TinyKinds...), cfg)
}

func mustOpen(t testing.TB, cfg source.Config) *data.Set {
	return settest.MustOpen(t, append(Kinds, TinyKinds...), cfg)
}
