package source

import (
	"cmp"

	"promptfed/federation/data"
)

// Kind is one kind of image set.
type Kind struct {
	Name    string
	About   string
	Expects string // expected content of data.root
	Source  string // origin of the data
	// Template is CoOp's hand-written prompt for the set; empty for "a photo of a {}.".
	Template string
	// Layouts are the values of data.layout besides auto.
	Layouts []string
	Open    Open
}

// Open lists the examples of a set.
type Open func(Config) (*data.Set, error)

func (k Kind) template() string { return cmp.Or(k.Template, "a photo of a {}.") }
