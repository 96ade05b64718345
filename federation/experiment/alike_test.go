package experiment

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
)

// Classes with the same features on a backbone are named before training: its tokenizer lower-cases all texts, so every
// prompt has one feature for both classes.
func TestReadAlike(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.Set, c.Data.Root = "folder", datatest.Tree(t, "train/a/1.png", "train/b/1.png", "train/c/1.png",
		"test/a/1.png", "test/b/1.png", "test/c/1.png")
	c.Data.ClassNames, c.Partition.Clients, c.Partition.Kind = map[string]string{"a": "Kite", "b": "kite"}, 1, "iid"
	notes := func() []string {
		b := taskOf(t, c)
		return slices.DeleteFunc(b.Info.Notes, func(s string) bool { return !strings.Contains(s, "same tokens") })
	}
	if got := notes(); len(got) != len(c.Backbones) || !strings.Contains(got[0], `"Kite" and "kite"`) {
		t.Errorf("notes %q", got)
	}
	c.Data.ClassNames["b"] = "kestrel"
	if got := notes(); len(got) != 0 {
		t.Errorf("notes on names that differ: %q", got)
	}
}

// Class names in a language that the vocabulary hardly knows are named before training.
func TestSpelledClasses(t *testing.T) {
	b := open(t, smallConfig("promptfl"))
	got, err := spelledClasses(b.Task.Backbones.Distinct[0], []string{"cat", "猫", "dog", "собака"})
	if err != nil || len(got) != 1 || !strings.Contains(got[0], "2 class names") || !strings.HasSuffix(got[0],
		"hardly knows them: 猫, собака; data.class_names gives them names that it knows, such as English ones") {
		t.Errorf("notes %q, %v", got, err)
	}
	if got, err := spelledClasses(b.Task.Backbones.Distinct[0], []string{"cat", "dog"}); len(got) != 0 || err != nil {
		t.Errorf("notes %q, %v", got, err)
	}
}
