package source

import "promptfed/federation/data"

// Config selects a set and how it is opened. The tags are the keys under `data:` in a configuration file.
type Config struct {
	Set        string            `config:"set" help:"data set, see promptfed list datasets"`
	Root       string            `config:"root" help:"folder of the set; unused by synthetic"`
	Layout     string            `config:"layout"`
	ClassNames map[string]string `config:"class_names" help:"names that prompts use, by class name, such as 0: zero"`
	Split      string            `config:"split"`
	Corrupt    string            `config:"corrupt" help:"unreadable images: refuse the set, or skip them"`
	Shots      int               `config:"shots" help:"training examples per class and client; 0: all"`
	Views      int               `config:"views"`
	Seed       uint64            `config:"seed" help:"seed of the synthetic images"`
	Generator  Generator         `config:"generator" help:"settings of the synthetic images (set synthetic)"`
}

// LongHelp implements keys.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"layout": "how the set is stored: auto, or one of docs/datasets.md; for set folder: classes, " +
			"domains, split, split-domains",
		"split": "given (the set's own splits), pooled (all examples, cut 60/20/20 inside each client) or " +
			"pooled-no-val (the same without the set's own val list)",
		"views": "augmented views per training image in the feature cache, drawn from the seed; 0 and 1: the plain " +
			"image only",
	}
}

// Generator is the section data.generator: settings of the generated images (set synthetic).
type Generator struct {
	Classes    []string `config:"classes" help:"classes; empty: all objects; patterns are also allowed"`
	Domains    []string `config:"domains" help:"domains; empty: all"`
	Train      int      `config:"train" help:"images per class and domain"`
	Val        int      `config:"val" help:"images per class and domain"`
	Test       int      `config:"test" help:"images per class and domain"`
	Size       int      `config:"size" help:"side of an image in pixels"`
	Difficulty float64  `config:"difficulty" help:"difficulty, from 0 (clean) to 1 (hard)"`
}

// Defaults returns the default configuration, which files and flags override. It names no set, since users always
// select their images.
func Defaults() Config {
	return Config{Layout: "auto", Split: "given", Corrupt: data.Refuse, Views: 1,
		Generator: Generator{Train: 16, Test: 10, Size: 64, Difficulty: 0.5}}
}

func (c Config) filled() Config {
	d := Defaults()
	for _, f := range []struct{ to, from *string }{{&c.Layout, &d.Layout}, {&c.Split, &d.Split},
		{&c.Corrupt, &d.Corrupt}} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	return c
}
