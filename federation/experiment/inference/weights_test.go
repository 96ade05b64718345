package inference

import (
	"path/filepath"
	"testing"

	"promptfed/federation/experiment"
	"promptfed/models/bundle/converted"
	"promptfed/runtime/goldentest"
)

// A run is used with exactly the weights of its training. Another bundle of that name passes every other check, as its
// sizes are equal; it is refused with both digests.
func TestOtherWeights(t *testing.T) {
	with := func(tiny string) string {
		dir := t.TempDir()
		if _, err := converted.Convert(filepath.Join("../../../models/tiny", tiny), filepath.Join(dir, "toy"),
			converted.Options{}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	here, other := with("tiny-vit-b16"), with("tiny-vit-b32")
	c, dir := trainedWith(t, "promptfl", func(c *experiment.Config) {
		c.Backbones, c.Runtime.Models = []string{"toy"}, here
	})
	for _, choice := range []Choice{{Client: 1}, {Client: -1, Global: true}} {
		open(t, c, dir, choice)
		moved := c
		moved.Runtime.Models = other
		f, err := Open(moved, dir, choice)
		if err == nil {
			f.Close()
			t.Fatalf("%v: the run is used with weights that it never saw", choice)
		}
		goldentest.WantErrorOf(t, choice.String(), err, "backbone toy", "other weights", "runtime.models")
	}
}
