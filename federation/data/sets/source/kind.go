// Package source has what the readers of image sets share: their configuration, walks over folders, lists of images,
// arrays of pixels, and the rules that make splits of them.
package source

import (
	"cmp"

	"promptfed/federation/data"
)

// Kind is one way to get a set.
type Kind struct {
	Name    string
	About   string
	Expects string // what must lie under data.root
	Source  string // where the data comes from
	// Template is CoOp's hand-written prompt for the set; empty for "a photo of a {}.".
	Template string
	// Layouts are the values of data.layout that the set takes beside auto.
	Layouts []string
	Open    Open
}

// Open lists the examples of a set.
type Open func(Config) (*data.Set, error)

func (k Kind) template() string { return cmp.Or(k.Template, "a photo of a {}.") }
