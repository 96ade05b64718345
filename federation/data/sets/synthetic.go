package sets

import (
	"fmt"
	"image"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/models/synthetic"
)

// syntheticKind describes the images that the program generates.
var syntheticKind = Kind{Name: "synthetic", About: "objects and patterns in several visual domains, drawn by the " +
	"program", Expects: "nothing", Source: "made on the fly; choose with data.generator", Open: openSynthetic}

// openSynthetic lists images that models/synthetic draws on demand. Their names begin with "drawn" because names seed
// random streams: another name would change recorded runs. The seed of an image depends on data.seed, its split and its
// number, and not on the selected classes, domains or counts.
func openSynthetic(cfg Config) (*data.Set, error) {
	o := cfg.Generator
	d := Defaults().Generator
	if o.Size == 0 {
		o.Size = d.Size
	}
	if o.Train == 0 && o.Val == 0 && o.Test == 0 {
		o.Train, o.Test = d.Train, d.Test
	}
	for i, short := range []bool{o.Train < 1, o.Val < 0, o.Test < 1} {
		if short {
			key := "data.generator." + []string{"train", "val", "test"}[i]
			return nil, &configtags.KeyError{Key: key, Err: fmt.Errorf("data.generator: train %d, val %d, test %d: "+
				"train and test need at least 1 image per class and domain", o.Train, o.Val, o.Test)}
		}
	}
	s := &data.Set{Layout: "made on the fly", Classes: slices.Clone(o.Classes), Domains: slices.Clone(o.Domains)}
	if len(s.Classes) == 0 {
		s.Classes = synthetic.Classes()
	}
	if len(s.Domains) == 0 {
		s.Domains = synthetic.Domains()
	}
	for i, list := range [][]string{s.Classes, s.Domains} {
		if sorted := slices.Sorted(slices.Values(list)); len(slices.Compact(sorted)) < len(list) {
			key := "data.generator." + []string{"classes", "domains"}[i]
			return nil, &configtags.KeyError{Key: key, Err: fmt.Errorf("data.generator: a name occurs twice in %q: "+
				"list every class and domain once", list)}
		}
	}
	style := synthetic.Level(o.Difficulty)
	for _, split := range []struct {
		name  string
		count int
		to    *[]data.Example
	}{{"train", o.Train, &s.Train}, {"val", o.Val, &s.Val}, {"test", o.Test, &s.Test}} {
		for di, domain := range s.Domains {
			for label, class := range s.Classes {
				for i := range split.count {
					sample, err := synthetic.New(class, domain, data.NewRand(cfg.Seed, "drawn/"+split.name, i).Uint64(),
						style)
					if err != nil {
						return nil, configtags.KeyErrorf("data.generator", "%w", err)
					}
					*split.to = append(*split.to, data.Example{
						ID:    fmt.Sprintf("drawn/%s/%s/%s/%04d", split.name, domain, class, i),
						Label: label, Domain: di,
						Stamp: fmt.Sprintf("%x %d %g", sample.Seed, o.Size, o.Difficulty),
						Load:  func() (image.Image, error) { return sample.Image(o.Size) },
					})
				}
			}
		}
	}
	return s, nil
}
