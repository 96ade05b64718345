package experiment

import (
	"context"
	"strings"
	"testing"
)

func withSynthetic(method string, classes ...string) Config {
	c := Defaults()
	c.Method, c.Options = method, map[string]any{"tokens": 2}
	c.Data.Generator.Classes, c.Data.Generator.Train, c.Data.Generator.Test = []string{"circle", "square"}, 2, 2
	c.Partition.Kind, c.Partition.Clients = "iid", 2
	if len(classes) > 0 {
		c.Synthetic.Set, c.Synthetic.Generator.Classes, c.Synthetic.Generator.Train = "synthetic", classes, 3
	}
	return c
}

// TestSyntheticSection: a method that needs the server's own images asks for them, classes are matched by name, and
// others are refused.
func TestSyntheticSection(t *testing.T) {
	for _, c := range []struct {
		conf Config
		want string
	}{
		{withSynthetic("gptfl"), "give them in the section synthetic"},
		{withSynthetic("gptfl", "circle", "house"), `class "house" is not one of the experiment's`},
	} {
		if _, err := Open(context.Background(), c.conf, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %s", err, c.want)
		}
	}
	b, err := Open(context.Background(), withSynthetic("promptfl", "square"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.synthetic) == 0 {
		t.Fatal("no synthetic images")
	}
	for _, e := range b.synthetic {
		if b.Set.Classes[e.Label] != "square" {
			t.Errorf("%s has label %d, %s", e.ID, e.Label, b.Set.Classes[e.Label])
		}
	}
}
