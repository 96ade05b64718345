package sets

import (
	"fmt"
	"strings"

	"promptfed/federation/data"
)

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
