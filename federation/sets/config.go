package sets

import (
	"fmt"
	"strings"

	"promptfed/federation/data"
)

// Config says which set to open and how. The tags are the keys under `data:` in a configuration file.
type Config struct {
	Set        string            `config:"set" help:"one of promptfed list datasets"`
	Root       string            `config:"root" help:"folder of the set; unused by drawn"`
	Layout     string            `config:"layout" help:"auto, or a form that the set comes in (docs/datasets.md); of set 'folder': classes, domains, split, split-domains"`
	ClassNames map[string]string `config:"class_names" help:"class name -> the name that prompts use, such as 0: zero"`
	Split      string            `config:"split" help:"given, or pooled: all examples, 60/20/20 inside each client, or pooled-no-val: the same without the set's own val list"`
	Corrupt    string            `config:"corrupt" help:"refuse, or skip"`
	Shots      int               `config:"shots" help:"training examples per class and client; 0 is all"`
	Views      int               `config:"views" help:"seeded augmented views per training image in the feature cache; 0 and 1: the plain one"`
	Seed       uint64            `config:"seed" help:"of the drawn images"`
	Drawn      Drawn             `config:"drawn" help:"options of the drawn set"`
}

// Drawn are the options of the drawn set.
type Drawn struct {
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
	return Config{Set: "drawn", Layout: "auto", Split: "given", Corrupt: data.Refuse, Views: 1,
		Drawn: Drawn{Train: 16, Test: 10, Size: 64, Difficulty: 0.5}}
}

// Validate checks everything that needs no disk. Empty strings stand for the defaults.
func (c Config) Validate() error {
	c = c.filled()
	var names, layouts []string
	for _, k := range kinds {
		names = append(names, k.Name)
		if k.Name == c.Set {
			layouts = append([]string{"auto"}, k.Layouts...)
		}
	}
	if err := data.OneOf("data.set", c.Set, names...); err != nil {
		return err
	}
	if err := data.OneOf("data.layout of set "+c.Set, c.Layout, layouts...); err != nil {
		return err
	}
	if err := data.OneOf("data.split", c.Split, "given", "pooled", "pooled-no-val"); err != nil {
		return err
	}
	if err := data.OneOf("data.corrupt", c.Corrupt, data.Refuse, data.Skip); err != nil {
		return err
	}
	if c.Shots < 0 {
		return fmt.Errorf("data.shots: %d is negative: take 0 for all examples or a count", c.Shots)
	}
	if c.Views < 0 {
		return fmt.Errorf("data.views: %d is negative: take 1 or more", c.Views)
	}
	if c.Set != "drawn" && c.Root == "" {
		return fmt.Errorf("data.root: set %q needs the folder it lies in: give data.root", c.Set)
	}
	return nil
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

// Open lists the set that cfg describes. No image is decoded; files that are not images are refused or skipped.
func Open(cfg Config) (*data.Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	for _, k := range kinds {
		if k.Name != cfg.Set {
			continue
		}
		s, err := k.open(cfg)
		if err != nil {
			return nil, err
		}
		s.Name = k.Name
		if err := rename(s, cfg.ClassNames); err != nil {
			return nil, err
		}
		if s.Template == "" {
			s.Template = k.template()
		}
		if cfg.Split != "given" {
			s.MergeSplits(cfg.Split == "pooled")
		}
		return s, nil
	}
	return nil, fmt.Errorf("data.set: %q is not known", cfg.Set)
}

// rename applies data.class_names, without regard to case, which configuration files lose in keys. A name that no class
// has, or two classes of one name, is an error.
func rename(s *data.Set, names map[string]string) error {
	to := map[string]string{}
	for from, name := range names {
		to[strings.ToLower(from)] = name
	}
	seen := map[string]bool{}
	for i, c := range s.Classes {
		key := strings.ToLower(c)
		if n, ok := to[key]; ok {
			s.Classes[i] = n
			delete(to, key)
		}
		if s.Classes[i] == "" || seen[s.Classes[i]] {
			return fmt.Errorf("data.class_names: class %q becomes %q, which is empty or taken: give every class its "+
				"own name", c, s.Classes[i])
		}
		seen[s.Classes[i]] = true
	}
	if len(to) > 0 {
		return fmt.Errorf("data.class_names: the set has no class %q: its classes are %s", sortedKeys(to)[0],
			strings.Join(s.Classes, ", "))
	}
	return nil
}
