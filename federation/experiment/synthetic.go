package experiment

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/sets"
	"promptfed/runtime/convert"
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

// openSynthetic opens the server's own images, with the labels of the experiment, and returns notes about them.
func openSynthetic(c Synthetic, classes []string) (own []data.Example, notes []string, err error) {
	set, err := sets.Open(c.Config)
	if err != nil {
		return nil, nil, ofSynthetic(err)
	}

	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", " ")) }
	number := map[string][]int{} // of the classes that are called so, capitals and underscores apart
	for i, name := range classes {
		number[plain(name)] = append(number[plain(name)], i)
	}

	for _, example := range append(set.Train, set.Pool...) {
		name := set.Classes[example.Label]
		example.Label = slices.Index(classes, name)
		switch same := number[plain(name)]; {
		case example.Label >= 0:
		case len(same) == 0:
			return nil, nil, configtags.KeyErrorf("synthetic", "class %q is not one of the experiment's; rename its "+
				"folder, or remove it", name)
		case len(same) > 1:
			return nil, nil, configtags.KeyErrorf("synthetic", "class %q may be %q or %q of the experiment; rename "+
				"its folder", name, classes[same[0]], classes[same[1]])
		default:
			example.Label = same[0]
		}

		own = append(own, example)
	}

	if len(own) == 0 {
		return nil, nil, configtags.KeyErrorf("synthetic.set", "the set has no images to train on")
	}

	notes = convert.Slice(set.Notes, func(note string) string { return "synthetic: " + note })
	if n := len(set.Val) + len(set.Test); n > 0 {
		notes = append(notes, fmt.Sprintf("synthetic: the server trains on %s; %d of val and test are not used "+
			"(synthetic.split: pooled takes all)", CountInWords(len(own), "image"), n))
	}

	return own, notes, nil
}
