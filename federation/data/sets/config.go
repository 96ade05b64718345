package sets

import "promptfed/federation/data/sets/source"

// What callers need of the packages that read sets.
type (
	Config    = source.Config
	Generator = source.Generator
	Kind      = source.Kind
	Missing   = source.Missing
)

// Defaults is the configuration that a file or a flag changes.
func Defaults() Config { return source.Defaults() }
