package sets

import (
	"context"
	"fmt"
	"image"
	"path/filepath"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/runtime/goldentest"
)

// TestSharedSets opens the real sets; the counts are those of shared/data/README.md, split by the rules.
func TestSharedSets(t *testing.T) {
	for _, c := range []struct {
		set, dir               string
		classes, domains       int
		train, test            int
		firstClass, lastDomain string
	}{
		{"pacs", "pacs", 7, 4, 896, 224, "dog", "sketch"},
		{"folder", "pacs", 7, 4, 896, 224, "dog", "sketch"},
		{"digits", "digits", 10, 3, 1440, 360, "0", "usps"},
		{"cifar10", "cifar10", 10, 0, 2000, 500, "airplane", ""},
		{"folder", "cifar10", 10, 0, 2000, 500, "airplane", ""},
		{"cifar10-bin", "cifar-10-batches-bin", 10, 0, 16000, 4000, "airplane", ""},
	} {
		t.Run(c.set+" "+c.dir, func(t *testing.T) {
			s := mustOpen(t, Config{Set: c.set, Root: goldentest.Shared(t, c.dir)})
			if len(s.Classes) != c.classes || len(s.Domains) != c.domains || s.Classes[0] != c.firstClass ||
				c.domains > 0 && s.Domains[c.domains-1] != c.lastDomain {
				t.Errorf("classes %q, domains %q", s.Classes, s.Domains)
			}
			if len(s.Train) != c.train || len(s.Test) != c.test || len(s.Val) != 0 {
				t.Errorf("%d train, %d val, %d test", len(s.Train), len(s.Val), len(s.Test))
			}
			for _, n := range s.Counts(s.Train) {
				if n*c.classes != c.train {
					t.Fatalf("unbalanced: %v", s.Counts(s.Train))
				}
			}
			if c.set == "pacs" {
				var seen int
				err := data.Decode(context.Background(), s.Test, 2, data.Refuse, datatest.Decode,
					func(_ int, img image.Image) (image.Rectangle, error) { return img.Bounds(), nil },
					func(_ int, r image.Rectangle, _ *data.BadImage) error {
						if seen++; max(r.Dx(), r.Dy()) != 128 {
							return fmt.Errorf("longest side %d", max(r.Dx(), r.Dy()))
						}
						return nil
					})
				if err != nil || seen != c.test {
					t.Errorf("decoded %d: %v", seen, err)
				}
			}
		})
	}
}

// TestSharedAbove opens the real samples from the folder above them.
func TestSharedAbove(t *testing.T) {
	root := filepath.Dir(goldentest.Shared(t, "pacs"))
	for set, want := range map[string][2]int{"pacs": {896, 224}, "digits": {1440, 360}, "cifar10": {16000, 4000}} {
		s := mustOpen(t, Config{Set: set, Root: root})
		if len(s.Train) != want[0] || len(s.Test) != want[1] {
			t.Errorf("%s: %d train, %d test, %q", set, len(s.Train), len(s.Test), s.Notes)
		}
	}
	if s := mustOpen(t, Config{Set: "cifar10", Root: root, Layout: "folders"}); len(s.Train) != 2000 ||
		len(s.Test) != 500 {
		t.Errorf("folders: %d train, %d test", len(s.Train), len(s.Test))
	}
}

// TestOpenErrors checks settings that no kind of set accepts.
func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		cfg   Config
		words []string
	}{
		{Config{Set: "pacs", Root: datatest.Tree(t, "a/cat/1.png", "b/cat/1.png")}, []string{"no PACS",
			"art_painting, cartoon", "raw_images", "data.root"}},
		{Config{Set: "mnist"}, []string{`"mnist"`, "folder"}},
		{Config{Set: "synthetic", Corrupt: "ignore"}, []string{"data.corrupt", "refuse"}},
		{Config{Set: "synthetic", Split: "half"}, []string{"data.split", "pooled"}},
	} {
		_, err := Open(c.cfg)
		goldentest.WantError(t, err, c.words...)
	}
}
