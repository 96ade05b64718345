package sets

import "promptfed/federation/data/sets/source"

// Types of package source that callers of this package use.
type (
	Config    = source.Config
	Generator = source.Generator
	Kind      = source.Kind
	Missing   = source.Missing
)

// Defaults returns the default configuration, which files and flags override.
func Defaults() Config { return source.Defaults() }
