// Package sets opens labelled image sets in the layouts that they are distributed in.
package sets

import (
	"cmp"
	"slices"

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
	open    func(Config) (*data.Set, error)
}

// kinds is the one table of sets.
var kinds = slices.Concat(generalKinds, coopKinds, domainKinds, smallKinds)

// generalKinds are ways to open any images.
var generalKinds = []Kind{
	{Name: "drawn", About: "objects and patterns in several visual domains, drawn by the program",
		Expects: "nothing",
		Source:  "made on the fly; choose with data.drawn", open: openDrawn},
	{Name: "folder", About: "any images, one folder per class",
		Expects: folderExpects,
		Source:  "your own images", Layouts: layouts, open: openFolder},
	{Name: "list", About: "any images, named with their labels in a CSV or JSON file",
		Expects: listExpects,
		Source:  "your own images", open: openListed},
	{Name: "parquet", About: "any images in Parquet files, as Hugging Face data sets are stored",
		Expects: parquetExpects,
		Source:  "Hugging Face data sets with image and label columns, or your own", open: openParquet},
}

func (k Kind) template() string { return cmp.Or(k.Template, "a photo of a {}.") }

// Kinds is the table of sets, for listing.
func Kinds() []Kind { return append([]Kind{}, kinds...) }
