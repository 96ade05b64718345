package experiment

import (
	"promptfed/models/bundle"
	"promptfed/models/tiny"
)

// The bundled backbones are found by name like any other.
func init() {
	for _, name := range tiny.Names() {
		if files, err := tiny.FS(name); err == nil {
			bundle.Register(name, files)
		}
	}
}
