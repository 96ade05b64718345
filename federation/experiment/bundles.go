package experiment

import (
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/bundle/exported"
	"promptfed/models/tiny"
)

// The forms of bundles, and the bundled backbones, which are found by name like any other.
func init() {
	bundle.Use(converted.Form, exported.Form)
	for _, name := range tiny.Names() {
		if files, err := tiny.FS(name); err == nil {
			converted.Embed(name, files)
		}
	}
}
