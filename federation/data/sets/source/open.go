package source

import (
	"errors"
	"fmt"
	"strings"

	"promptfed/federation/data"
)

// Check checks all keys without reading the disk. Empty strings mean the defaults.
func (c Config) Check(kinds []Kind) error {
	if err := c.CheckSet(kinds); err != nil {
		return err
	}
	return c.CheckOptions()
}

// CheckSet checks the keys that select the set and its folder; data.set must be one of the kinds. Empty strings mean
// the defaults.
func (c Config) CheckSet(kinds []Kind) error {
	c = c.filled()
	switch {
	case c.Set == "drawn":
		return errors.New("data.set: drawn is now called synthetic")
	case c.Set == "" && c.Root != "":
		return fmt.Errorf("data.set: missing, but data.root is %s: set data.set to folder for folders of images, "+
			"or another of promptfed list datasets", c.Root)
	case c.Set == "":
		return errors.New("data.set: missing; name the images: data.set with data.root (promptfed list datasets), or " +
			"data.set: synthetic for images that the program draws; promptfed init FOLDER writes a configuration, " +
			"and promptfed run --images FOLDER needs none")
	}
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
	if c.Set != "synthetic" && c.Root == "" {
		return fmt.Errorf("data.root: set %q needs the folder that holds it: set data.root", c.Set)
	}
	return nil
}

// CheckOptions checks the keys that apply to every set. Empty strings mean the defaults.
func (c Config) CheckOptions() error {
	c = c.filled()
	if err := data.OneOf("data.split", c.Split, "given", "pooled", "pooled-no-val"); err != nil {
		return err
	}
	if err := data.OneOf("data.corrupt", c.Corrupt, data.Refuse, data.Skip); err != nil {
		return err
	}
	if c.Shots < 0 {
		return fmt.Errorf("data.shots: %d is negative: set 0 for all examples, or a number", c.Shots)
	}
	if c.Views < 0 {
		return fmt.Errorf("data.views: %d is negative: set 1 or more", c.Views)
	}
	return nil
}

// OpenIn lists the set that cfg describes, which is of one of the kinds. It decodes no image; files that are not images
// are refused or skipped.
func OpenIn(kinds []Kind, cfg Config) (*data.Set, error) {
	if err := cfg.Check(kinds); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	for _, k := range kinds {
		if k.Name != cfg.Set {
			continue
		}
		s, err := k.Open(cfg)
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

// rename applies data.class_names case-insensitively, since keys of configuration files lose their case. A name that
// matches no class, or two classes with the same new name, are errors.
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
			return fmt.Errorf("data.class_names: class %q becomes %q, which is empty or used twice: give every class "+
				"its own name", c, s.Classes[i])
		}
		seen[s.Classes[i]] = true
	}
	if len(to) > 0 {
		return fmt.Errorf("data.class_names: the set has no class %q: its classes are %s", SortedKeys(to)[0],
			strings.Join(s.Classes, ", "))
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
