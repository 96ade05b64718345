// Package sets opens labelled image sets in the layouts that they are distributed in.
package sets

import (
	"fmt"
	"strings"

	"promptfed/federation/data"
)

// Kind is one way to get a set.
type Kind struct {
	Name    string
	About   string
	Expects string // what must lie under data.root
	Source  string // where the data comes from
	open    func(Config) (*data.Set, error)
}

// kinds is the one table of sets.
var kinds = []Kind{
	{"drawn", "objects and patterns in several visual domains, drawn by the program", "nothing",
		"made on the fly; choose with data.drawn", openDrawn},
	{"folder", "any images, one folder per class", folderExpects, "your own images", openFolder},
	{"pacs", "PACS (Li et al., ICCV 2017): 4 domains, 7 classes", "DOMAIN/CLASS/ with art_painting, cartoon, photo, sketch",
		"the PACS release of the DomainBed or Dassl projects", preset("domains", 7, 4)},
	{"digits", "handwritten digits in several domains (MNIST, MNIST-M, USPS, SVHN, ...)", "DOMAIN/CLASS/ with classes 0 to 9",
		"Digits-5 or Digits-DG, as image folders", preset("domains", 10, 0)},
	{"office31", "Office-31 (Saenko et al., ECCV 2010): 3 domains, 31 classes", "DOMAIN/CLASS/ with amazon, dslr, webcam",
		"the Office-31 release, without its images/ level", preset("domains", 31, 3)},
	{"officehome", "Office-Home (Venkateswara et al., CVPR 2017): 4 domains, 65 classes",
		"DOMAIN/CLASS/ with Art, Clipart, Product, Real World", "the Office-Home release", preset("domains", 65, 4)},
	{"cifar10", "CIFAR-10 (Krizhevsky, 2009) as images", "{train,test}/CLASS/", "CIFAR-10 exported to image files",
		preset("split", 10, 0)},
	{"cifar10-bin", "CIFAR-10 in its binary version", "data_batch_N.bin, and if present test_batch.bin and batches.meta.txt",
		"the binary version of CIFAR-10", openCIFAR},
}

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
