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
	generator := cfg.Generator
	d := Defaults().Generator
	if generator.Size == 0 {
		generator.Size = d.Size
	}

	if generator.Size < 4 {
		return nil, configtags.KeyErrorf("data.generator.size", "%d; it must be at least 4", generator.Size)
	}

	if generator.Train == 0 && generator.Val == 0 && generator.Test == 0 {
		generator.Train, generator.Test = d.Train, d.Test
	}

	for i, count := range []int{generator.Train, generator.Test} {
		if count < 1 {
			key := "data.generator." + []string{"train", "test"}[i]
			return nil, &configtags.KeyError{Key: key, Err: fmt.Errorf("data.generator: train %d, test %d: both need "+
				"at least 1 image per class and domain", generator.Train, generator.Test)}
		}
	}

	set := &data.Set{Layout: "made on the fly", Classes: slices.Clone(generator.Classes),
		Domains: slices.Clone(generator.Domains)}
	if len(set.Classes) == 0 {
		set.Classes = synthetic.Classes()
	}

	if len(set.Domains) == 0 {
		set.Domains = synthetic.Domains()
	}

	for i, list := range [][]string{set.Classes, set.Domains} {
		if sorted := slices.Sorted(slices.Values(list)); len(slices.Compact(sorted)) < len(list) {
			key := "data.generator." + []string{"classes", "domains"}[i]
			return nil, &configtags.KeyError{Key: key, Err: fmt.Errorf("data.generator: a name occurs twice in %q: "+
				"list every class and domain once", list)}
		}
	}

	style := synthetic.Level(generator.Difficulty)
	for _, split := range []struct {
		name  string
		count int
		to    *[]data.Example
	}{{"train", generator.Train, &set.Train}, {"val", generator.Val, &set.Val}, {"test", generator.Test, &set.Test}} {
		for di, domain := range set.Domains {
			for label, class := range set.Classes {
				for i := range split.count {
					sample, err := synthetic.New(class, domain, data.NewRand(cfg.Seed, "drawn/"+split.name, i).Uint64(),
						style)
					if err != nil {
						return nil, configtags.KeyErrorf("data.generator", "%w", err)
					}
					*split.to = append(*split.to, data.Example{
						ID:    fmt.Sprintf("drawn/%s/%s/%s/%04d", split.name, domain, class, i),
						Label: label, Domain: di,
						Stamp: fmt.Sprintf("%x %d %g", sample.Seed, generator.Size, generator.Difficulty),
						Load:  func() (image.Image, error) { return sample.Image(generator.Size) },
					})
				}
			}
		}
	}

	return set, nil
}
