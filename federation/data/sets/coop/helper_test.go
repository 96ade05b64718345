package coop

import (
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
)

func openSet(cfg source.Config) (*data.Set, error) {
	return source.OpenIn(Kinds, cfg)
}

func mustOpen(t testing.TB, cfg source.Config) *data.Set {
	return settest.MustOpen(t, Kinds, cfg)
}
