package coop

import (
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
)

var kinds = slices.Concat(Kinds, VariantKinds, TinyKinds)

func openSet(cfg source.Config) (*data.Set, error) {
	return source.OpenIn(kinds, cfg)
}

func mustOpen(t testing.TB, cfg source.Config) *data.Set {
	return settest.MustOpen(t, kinds, cfg)
}
