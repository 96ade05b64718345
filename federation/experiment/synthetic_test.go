package experiment

import (
	"context"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/goldentest"
)

func withSynthetic(method string, classes ...string) Config {
	c := Defaults()
	c.Data.Set = "synthetic"
	c.Method, c.Options = method, map[string]any{"tokens": 2}
	c.Data.Generator.Classes, c.Data.Generator.Train, c.Data.Generator.Test = []string{"circle", "square"}, 2, 2
	c.Partition.Kind, c.Partition.Clients = "iid", 2
	if len(classes) > 0 {
		c.Synthetic.Set, c.Synthetic.Generator.Classes, c.Synthetic.Generator.Train = "synthetic", classes, 3
	}
	return c
}

// TestSyntheticSection: a method that needs the server's own images requires them, classes are matched by name, and
// unknown classes are refused.
func TestSyntheticSection(t *testing.T) {
	for _, c := range []struct {
		conf Config
		want string
	}{
		{withSynthetic("gptfl"), "give them in the section synthetic"},
		{withSynthetic("gptfl", "circle", "house"), `class "house" is not one of the experiment's`},
	} {
		_, err := Open(context.Background(), c.conf, nil)
		goldentest.WantError(t, err, c.want)
	}
	b := taskOf(t, withSynthetic("promptfl", "square"))
	if len(b.synthetic) == 0 {
		t.Fatal("no synthetic images")
	}
	for _, e := range b.synthetic {
		if b.Data.Set.Classes[e.Label] != "square" {
			t.Errorf("%s has label %d, %s", e.ID, e.Label, b.Data.Set.Classes[e.Label])
		}
	}
}

// The server's own images belong to the class of exactly their name. If only capitals or underscores differ, they
// belong to the one class that matches.
func TestSyntheticClasses(t *testing.T) {
	c := smallConfig("promptfl")
	c.Data.Set, c.Data.Root = "folder", datatest.Tree(t, "train/x/1.png", "train/y/1.png", "train/z/1.png",
		"test/x/1.png", "test/y/1.png", "test/z/1.png")
	c.Data.ClassNames = map[string]string{"x": "A", "y": "a", "z": "hen house"}
	c.Partition.Clients, c.Partition.Kind = 1, "iid"
	own := func(class string) (*Task, error) {
		c.Synthetic.Set, c.Synthetic.Root = "folder", datatest.Tree(t, "train/"+class+"/1.png", "test/"+class+"/1.png")
		return Open(t.Context(), c, nil)
	}
	for class, want := range map[string]int{"A": 0, "a": 1, "Hen_House": 2} {
		b, err := own(class)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.synthetic) != 1 || b.synthetic[0].Label != want {
			t.Errorf("images of %s have label %d, want %d", class, b.synthetic[0].Label, want)
		}
	}
	c.Data.ClassNames["z"], c.Data.ClassNames["y"] = "b", "HEN house"
	c.Data.ClassNames["x"] = "hen House"
	_, err := own("hen_house")
	goldentest.WantError(t, err, `may be "hen House" or "HEN house"`)
}
