package source

import "promptfed/federation/data"

// Config says which set to open and how. The tags are the keys under `data:` in a configuration file.
type Config struct {
	Set        string            `config:"set" help:"one of promptfed list datasets"`
	Root       string            `config:"root" help:"folder of the set; unused by synthetic"`
	Layout     string            `config:"layout"`
	ClassNames map[string]string `config:"class_names" help:"class name -> the name that prompts use, such as 0: zero"`
	Split      string            `config:"split"`
	Corrupt    string            `config:"corrupt" help:"refuse, or skip"`
	Shots      int               `config:"shots" help:"training examples per class and client; 0 is all"`
	Views      int               `config:"views"`
	Seed       uint64            `config:"seed" help:"of the images that the program makes"`
	Generator  Generator         `config:"generator" help:"of the images that the program makes (set synthetic)"`
}

// LongHelp implements keys.LongHelp.
func (Config) LongHelp() map[string]string {
	return map[string]string{
		"layout": "auto, or a form that the set comes in (docs/datasets.md); of set 'folder': classes, domains, " +
			"split, split-domains",
		"split": "given, or pooled: all examples, 60/20/20 inside each client, or pooled-no-val: the same without " +
			"the set's own val list",
		"views": "seeded augmented views per training image in the feature cache; 0 and 1: the plain one",
	}
}

// Generator is the section data.generator: the images that the program makes (set synthetic).
type Generator struct {
	Classes    []string `config:"classes" help:"empty: all objects; names of patterns are allowed too"`
	Domains    []string `config:"domains" help:"empty: all"`
	Train      int      `config:"train" help:"images per class and domain"`
	Val        int      `config:"val" help:"images per class and domain"`
	Test       int      `config:"test" help:"images per class and domain"`
	Size       int      `config:"size" help:"pixels a side"`
	Difficulty float64  `config:"difficulty" help:"0 clean to 1 hard"`
}

// Defaults is the configuration that a file or a flag changes.
func Defaults() Config {
	return Config{Set: "synthetic", Layout: "auto", Split: "given", Corrupt: data.Refuse, Views: 1,
		Generator: Generator{Train: 16, Test: 10, Size: 64, Difficulty: 0.5}}
}

func (c Config) filled() Config {
	d := Defaults()
	for _, f := range []struct{ to, from *string }{{&c.Set, &d.Set}, {&c.Layout, &d.Layout}, {&c.Split, &d.Split},
		{&c.Corrupt, &d.Corrupt}} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	return c
}
