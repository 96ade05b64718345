// Package sets opens labelled image sets in the layouts that they are distributed in.
package sets

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	open     func(Config) (*data.Set, error)
}

// kinds is the one table of sets.
var kinds = slices.Concat(generalKinds, domainKinds, smallKinds)

// generalKinds are ways to open any images.
var generalKinds = []Kind{
	{Name: "drawn", About: "objects and patterns in several visual domains, drawn by the program",
		Expects: "nothing",
		Source:  "made on the fly; choose with data.drawn", open: openDrawn},
	{Name: "folder", About: "any images, one folder per class",
		Expects: folderExpects,
		Source:  "your own images", open: openFolder},
}

// domainKinds are sets in several visual domains.
var domainKinds = []Kind{
	{Name: "pacs", About: "PACS (Li et al., ICCV 2017): 4 domains, 7 classes",
		Expects: "DOMAIN/CLASS/ with art_painting, cartoon, photo, sketch",
		Source:  "the PACS release of the DomainBed or Dassl projects", open: preset("domains", 7, 4)},
	{Name: "digits", About: "handwritten digits in several domains (MNIST, MNIST-M, USPS, SVHN, ...)",
		Expects: "DOMAIN/CLASS/ with classes 0 to 9",
		Source:  "Digits-5 or Digits-DG, as image folders", open: preset("domains", 10, 0)},
	{Name: "office31", About: "Office-31 (Saenko et al., ECCV 2010): 3 domains, 31 classes",
		Expects: "DOMAIN/CLASS/ with amazon, dslr, webcam",
		Source:  "the Office-31 release, without its images/ level", open: preset("domains", 31, 3)},
	{Name: "officehome", About: "Office-Home (Venkateswara et al., CVPR 2017): 4 domains, 65 classes",
		Expects: "DOMAIN/CLASS/ with Art, Clipart, Product, Real World",
		Source:  "the Office-Home release", open: preset("domains", 65, 4)},
}

// smallKinds are sets of small images in files of their own formats.
var smallKinds = []Kind{
	{Name: "cifar10", About: "CIFAR-10 (Krizhevsky, 2009) as images",
		Expects: "{train,test}/CLASS/",
		Source:  "CIFAR-10 exported to image files", open: preset("split", 10, 0)},
	{Name: "cifar10-bin", About: "CIFAR-10 in its binary version",
		Expects: "data_batch_N.bin, and if present test_batch.bin and batches.meta.txt",
		Source:  "the binary version of CIFAR-10", open: openCIFAR},
}

func (k Kind) template() string { return cmp.Or(k.Template, "a photo of a {}.") }

// Kinds is the table of sets, for listing.
func Kinds() []Kind { return append([]Kind{}, kinds...) }

// preset opens a folder with a fixed layout and checks how many classes and domains it has; 0 is any number of domains.
func preset(layout string, classes, domains int) func(Config) (*data.Set, error) {
	return func(cfg Config) (*data.Set, error) {
		cfg.Layout = layout
		s, err := openFolder(cfg)
		if err != nil {
			return nil, err
		}
		if len(s.Classes) != classes {
			return nil, fmt.Errorf("%s: found %d classes (%s), but %s has %d: check data.root, or take data.set: folder", cfg.Root,
				len(s.Classes), strings.Join(s.Classes, ", "), cfg.Set, classes)
		}
		if domains > 0 && len(s.Domains) != domains {
			return nil, fmt.Errorf("%s: found %d domains (%s), but %s has %d: check data.root, or take data.set: folder", cfg.Root,
				len(s.Domains), strings.Join(s.Domains, ", "), cfg.Set, domains)
		}
		return s, nil
	}
}
