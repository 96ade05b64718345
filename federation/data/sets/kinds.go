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

// Types of package source that callers of this package use.
type (
	Config    = source.Config
	Generator = source.Generator
	Kind      = source.Kind
	Missing   = source.Missing
)

// Defaults returns the default configuration, which files and flags override.
func Defaults() Config { return source.Defaults() }

// kinds is the table of all sets.
var kinds = slices.Concat([]Kind{syntheticKind, folder.Kind, list.Kind, parquet.Kind}, coop.Kinds, domains.Kinds,
	cifar.Kinds)

// Kinds returns the table of sets.
func Kinds() []Kind { return append([]Kind{}, kinds...) }

// Open lists the set that cfg describes. It decodes no image; files that are not images are refused or skipped.
func Open(cfg Config) (*data.Set, error) { return source.OpenIn(kinds, cfg) }

// ValidateSet checks the keys that select the set and its folder, without reading the disk.
func ValidateSet(cfg Config) error { return cfg.CheckSet(kinds) }

// Validate checks all keys of cfg without reading the disk. Empty strings mean the defaults.
func Validate(cfg Config) error { return cfg.Check(kinds) }
