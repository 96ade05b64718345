package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/data/sets"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
)

// Synthetic is the section synthetic: images of the server's own.
type Synthetic struct {
	sets.Config `config:",squash"`
	Epochs      int `config:"epochs" in:"1.." help:"epochs that the server trains on its own images before round 0"`
}

func (s Synthetic) check() error {
	if s.Set == "" {
		return nil
	}
	if err := configtags.Check("synthetic.", s); err != nil {
		return err
	}
	if err := sets.Validate(s.Config); err != nil {
		return ofSynthetic(err)
	}
	return nil
}

// ofSynthetic adds the section to an error of package sets, whose keys are those of the section data.
func ofSynthetic(err error) error {
	key := "synthetic"
	switch own, ok := strings.CutPrefix(configtags.KeyOf(err), "data."); {
	case own == "root": // it is missing, and the set needs it
		key += ".set"
	case ok:
		key += "." + own
	}
	return &configtags.KeyError{Key: key, Err: fmt.Errorf("synthetic: %w", err)}
}

// openSynthetic opens the server's own images and gives them the labels of the experiment.
func (b *Built) openSynthetic() error {
	c := b.Config.Synthetic
	if c.Set == "" {
		if methods.NeedsSynthetic(b.Method) {
			return errors.New("the method needs images of the server's own: give them in the section synthetic, such " +
				"as synthetic: {set: folder, root: IMAGES}")
		}
		return nil
	}
	set, err := sets.Open(c.Config)
	if err != nil {
		return ofSynthetic(err)
	}
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", " ")) }
	number := map[string][]int{} // of the classes that are called so, capitals and underscores apart
	for i, name := range b.Set.Classes {
		number[plain(name)] = append(number[plain(name)], i)
	}
	for _, e := range append(set.Train, set.Pool...) {
		name := set.Classes[e.Label]
		e.Label = slices.Index(b.Set.Classes, name)
		switch same := number[plain(name)]; {
		case e.Label >= 0:
		case len(same) == 0:
			return configtags.KeyErrorf("synthetic", "class %q is not one of the experiment's; rename its folder, or "+
				"remove it", name)
		case len(same) > 1:
			return configtags.KeyErrorf("synthetic", "class %q may be %q or %q of the experiment; rename its folder",
				name, b.Set.Classes[same[0]], b.Set.Classes[same[1]])
		default:
			e.Label = same[0]
		}
		b.synthetic = append(b.synthetic, e)
	}
	if len(b.synthetic) == 0 {
		return &configtags.KeyError{Key: "synthetic.set", Err: errors.New("synthetic: the set has no images to train " +
			"on")}
	}
	for _, note := range set.Notes {
		b.Info.Notes = append(b.Info.Notes, "synthetic: "+note)
	}
	if n := len(set.Val) + len(set.Test); n > 0 {
		b.Info.Notes = append(b.Info.Notes, fmt.Sprintf("synthetic: the server trains on %s; %d of val and test are "+
			"not used (synthetic.split: pooled takes all)", CountInWords(len(b.synthetic), "image"), n))
	}
	b.Engine.Options += data.Digest(b.synthetic) + fmt.Sprint(c.Epochs)
	return nil
}

func (b *Built) syntheticFeatures(ctx context.Context, x features.Extractor) error {
	if len(b.synthetic) == 0 {
		return nil
	}
	f := b.Bundles[0]
	rows, err := b.featuresOf(ctx, x, f, b.synthetic, 1)
	if err == nil {
		b.Engine.Synthetic = &spec.Synthetic{Backbone: Backbone{f}, Data: rows, Epochs: b.Config.Synthetic.Epochs}
	}
	return err
}
