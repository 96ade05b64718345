package source

import (
	"cmp"
	"slices"
	"strings"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
)

// Config selects a set and how it is opened. The tags are the keys under `data:` in a configuration file.
type Config struct {
	Set        string            `config:"set" help:"data set, see promptfed list datasets"`
	Root       string            `config:"root" help:"folder of the set; unused by synthetic"`
	Layout     string            `config:"layout"`
	ClassNames map[string]string `config:"class_names" help:"names that prompts use, by class name, such as 0: zero"`
	Split      string            `config:"split"`
	Corrupt    string            `config:"corrupt" help:"unreadable images: refuse the set, or skip them"`
	Seed       uint64            `config:"seed" help:"seed of the synthetic images"`
	Generator  Generator         `config:"generator" help:"settings of the synthetic images (set synthetic)"`
}

// LongHelp implements configtags.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"layout": "how the set is stored: auto, or one of docs/datasets.md; for set folder: classes, " +
			"domains, split, split-domains",
		"split": "given (the set's own splits), pooled (all examples, cut 60/20/20 inside each client) or " +
			"pooled-no-val (the same without the set's own val list)",
	}
}

// Generator is the section data.generator: settings of the generated images (set synthetic).
type Generator struct {
	Classes    []string `config:"classes" help:"classes; empty: all objects; patterns are also allowed"`
	Domains    []string `config:"domains" help:"domains; empty: all"`
	Train      int      `config:"train" in:"0..10000" help:"images per class and domain"`
	Val        int      `config:"val" in:"0..10000" help:"images per class and domain"`
	Test       int      `config:"test" in:"0..10000" help:"images per class and domain"`
	Size       int      `config:"size" in:"0..2048" help:"side of an image in pixels"`
	Difficulty float64  `config:"difficulty" in:"0..1" help:"difficulty, from 0 (clean) to 1 (hard)"`
}

// Defaults returns the default configuration, which files and flags override. It names no set, since users always
// select their images.
func Defaults() Config {
	return Config{Layout: "auto", Split: "given", Corrupt: data.Refuse,
		Generator: Generator{Train: 16, Test: 10, Size: 64, Difficulty: 0.5}}
}

// filled returns the configuration with the defaults in place of empty strings.
func (c Config) filled() Config {
	d := Defaults()
	c.Layout, c.Split, c.Corrupt = cmp.Or(c.Layout, d.Layout), cmp.Or(c.Split, d.Split), cmp.Or(c.Corrupt, d.Corrupt)
	return c
}

// Kind is one kind of image set.
type Kind struct {
	Name    string `json:"name"`
	About   string `json:"about"`
	Expects string `json:"expects"` // expected content of data.root
	Source  string `json:"source"`  // origin of the data
	// Template is CoOp's hand-written prompt for the set; empty for "a photo of a {}.".
	Template string `json:"-"`
	// Layouts are the values of data.layout besides auto.
	Layouts []string `json:"-"`
	Open    Open     `json:"-"`
}

// Open lists the examples of a set.
type Open func(Config) (*data.Set, error)

// Check checks all keys without reading the disk. Empty strings mean the defaults.
func (c Config) Check(kinds []Kind) error {
	return cmp.Or(c.CheckSet(kinds), c.CheckOptions())
}

// CheckSet checks the keys that select the set and its folder; data.set must be one of the kinds. Empty strings mean
// the defaults.
func (c Config) CheckSet(kinds []Kind) error {
	c = c.filled()
	switch {
	case c.Set == "" && c.Root != "":
		return configtags.KeyErrorf("data.set", "missing, but data.root is %s: set data.set to folder for folders of "+
			"images, or another of promptfed list datasets", c.Root)
	case c.Set == "":
		return configtags.KeyErrorf("data.set", "missing; name the images: data.set with data.root (promptfed list "+
			"datasets), or data.set: synthetic for images that the program draws; promptfed init FOLDER writes a "+
			"configuration, and promptfed run --images FOLDER needs none")
	}

	var names, layouts []string
	for _, k := range kinds {
		names = append(names, k.Name)
		if k.Name == c.Set {
			layouts = append([]string{"auto"}, k.Layouts...)
		}
	}

	layout := data.OneOf("data.layout of set "+c.Set, c.Layout, layouts...)
	if layout != nil {
		layout = &configtags.KeyError{Key: "data.layout", Err: layout}
	}

	return cmp.Or(data.OneOf("data.set", c.Set, names...), layout,
		configtags.Need(c.Set == "synthetic" || c.Root != "", "data.root", "set %q needs the folder that holds it: "+
			"set data.root", c.Set))
}

// CheckOptions checks the keys that apply to every set. Empty strings mean the defaults.
func (c Config) CheckOptions() error {
	c = c.filled()
	return cmp.Or(data.OneOf("data.split", c.Split, "given", "pooled", "pooled-no-val"),
		data.OneOf("data.corrupt", c.Corrupt, data.Refuse, data.Skip),
		configtags.Check("data.generator.", c.Generator))
}

// OpenIn lists the set that cfg describes, which is of one of the kinds. It decodes no image; files that are not images
// are refused or skipped.
func OpenIn(kinds []Kind, cfg Config) (*data.Set, error) {
	if err := cfg.Check(kinds); err != nil {
		return nil, err
	}

	cfg = cfg.filled()
	k := kinds[slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == cfg.Set })]
	s, err := k.Open(cfg)
	if err != nil {
		return nil, err
	}

	s.Name, s.Template = k.Name, cmp.Or(k.Template, "a photo of a {}.")
	if cfg.Split != "given" {
		s.MergeSplits(cfg.Split == "pooled")
	}

	return s, rename(s, cfg.ClassNames)
}

// rename applies data.class_names case-insensitively, since keys of configuration files lose their case. A name that
// matches no class, or two classes with the same new name, are errors.
func rename(set *data.Set, names map[string]string) error {
	to := map[string]string{}
	for from, name := range names {
		to[strings.ToLower(from)] = name
	}

	seen := map[string]bool{}
	for i, c := range set.Classes {
		key := strings.ToLower(c)
		if n, ok := to[key]; ok {
			set.Classes[i] = n
			delete(to, key)
		}
		if !isName(set.Classes[i]) || seen[set.Classes[i]] {
			return configtags.KeyErrorf("data.class_names", "class %q becomes %q, which is no text of one line or "+
				"used twice: give every class its own name", c, set.Classes[i])
		}
		seen[set.Classes[i]] = true
	}

	if len(to) > 0 {
		return configtags.KeyErrorf("data.class_names", "the set has no class %q: its classes are %s",
			SortedKeys(to)[0], strings.Join(set.Classes, ", "))
	}

	return nil
}

// Missing is the error if data.root contains nothing of a published set: it is not one of the set's folders and
// contains none of them. A set's folder without lists or images is a different error.
type Missing struct{ error }

func (m Missing) Unwrap() error { return m.error }

// NothingFound returns err as Missing if the search found no folder except data.root.
func NothingFound(err error, searched []string) error {
	if len(searched) == 1 {
		return Missing{err}
	}
	return err
}
