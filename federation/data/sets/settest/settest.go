// Package settest holds helpers of tests of the readers of image sets: comparisons with what Python reads from the
// files of testdata, and checks of a set.
package settest

import (
	"fmt"
	"image/color"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
)

// WantImages compares labels and pixels with those that Python read.
func WantImages(t *testing.T, got []data.Example, names ...string) {
	t.Helper()
	for _, name := range names {
		want, ok := datatest.Golden(t).Images[name]
		if !ok || len(got) < len(want.Labels) {
			t.Errorf("%s: %d images of %d", name, len(got), len(want.Labels))
			return
		}

		if labels := data.Labels(got[:len(want.Labels)]); !slices.Equal(labels, want.Labels) {
			t.Errorf("%s: labels %v, want %v", name, labels, want.Labels)
		}

		for _, p := range want.Pixels {
			img, err := got[p[0]].Image(datatest.Decode)
			if err != nil {
				t.Fatal(err)
			}
			c := color.RGBAModel.Convert(img.At(p[2], p[1])).(color.RGBA)
			if rgb := []int{int(c.R), int(c.G), int(c.B)}; !slices.Equal(rgb[:len(p)-3], p[3:]) || len(p) == 4 &&
				(c.G != c.R || c.B != c.R) || c.A != 255 {
				t.Fatalf("%s: image %d row %d column %d is %v, want %v", name, p[0], p[1], p[2], c, p[3:])
			}
		}

		got = got[len(want.Labels):]
	}

	if len(got) > 0 {
		t.Errorf("%d images too many", len(got))
	}
}

// WantNote checks that the set has a note with a word.
func WantNote(t *testing.T, s *data.Set, word string) {
	t.Helper()
	if !slices.ContainsFunc(s.Notes, func(n string) bool { return strings.Contains(n, word) }) {
		t.Errorf("no note says %q: %q", word, s.Notes)
	}
}

// IDs returns the examples as name=label.domain.
func IDs(list []data.Example) []string {
	return convert.Slice(list, func(e data.Example) string {
		return fmt.Sprintf("%s=%d.%d", e.ID, e.Label, e.Domain)
	})
}

// Openers returns functions that open a set of one of the kinds. The second one stops the test where that fails.
func Openers(kinds ...source.Kind) (open func(source.Config) (*data.Set, error),
	mustOpen func(testing.TB, source.Config) *data.Set) {
	open = func(cfg source.Config) (*data.Set, error) { return source.OpenIn(kinds, cfg) }
	mustOpen = func(t testing.TB, cfg source.Config) *data.Set {
		t.Helper()
		s, err := open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	return open, mustOpen
}
