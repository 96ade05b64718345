// Package sets opens labelled image sets in the layouts that they are distributed in.
package sets

import (
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/cifar"
	"promptfed/federation/data/sets/coop"
	"promptfed/federation/data/sets/domains"
	"promptfed/federation/data/sets/folder"
	"promptfed/federation/data/sets/list"
	"promptfed/federation/data/sets/parquet"
	"promptfed/federation/data/sets/source"
)

// kinds is the one table of sets.
var kinds = slices.Concat([]Kind{syntheticKind, folder.Kind, list.Kind, parquet.Kind}, coop.Kinds, coop.VariantKinds,
	domains.Kinds, cifar.Kinds, coop.TinyKinds)

// Kinds is the table of sets, for listing.
func Kinds() []Kind { return append([]Kind{}, kinds...) }

// Open lists the set that cfg describes. No image is decoded; files that are not images are refused or skipped.
func Open(cfg Config) (*data.Set, error) { return source.OpenIn(kinds, cfg) }

// ValidateSet checks which set it is and where, without its disk.
func ValidateSet(cfg Config) error { return cfg.CheckSet(kinds) }

// Validate checks everything of cfg that needs no disk. Empty strings mean the defaults.
func Validate(cfg Config) error { return cfg.Check(kinds) }
