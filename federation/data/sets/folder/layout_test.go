package folder

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/goldentest"
)

// tree writes a folder with n images in every class folder; each folder is given as its path.
func tree(t *testing.T, n int, classFolders ...string) string {
	var files []string
	for _, dir := range classFolders {
		for i := range n {
			files = append(files, fmt.Sprintf("%s/%d.png", dir, i))
		}
	}
	return datatest.Tree(t, files...)
}

// Folders named as splits are recognised in every usual spelling, and are not read as domains, which would train on
// validation images.
func TestSplitFolders(t *testing.T) {
	for _, c := range []struct {
		train, val, test string
	}{{"train", "val", ""}, {"Training", "Validation", ""}, {"TRN", "valid", "tst"}, {"train_set", "dev-set",
		"Test Set"}, {"imgs_train", "imgs_valid", "testing"},
		{"train2017", "val2017", ""}, {"train", "", "eval"}, {"train_images", "", "test_images"}} {
		for _, domain := range []string{"", "art/"} {
			var dirs []string
			for _, split := range []string{c.train, c.val, c.test} {
				if split != "" {
					dirs = append(dirs, split+"/"+domain+"cat", split+"/"+domain+"dog")
				}
			}
			s := mustOpen(t, source.Config{Set: "folder", Root: tree(t, 10, dirs...)})
			val, notes := 20, 0
			if c.val == "" || c.test == "" {
				val = 0
			}
			if c.test != "test_images" && val == 0 { // val, or eval, is the test split
				notes = 1
			}
			if len(s.Train) != 20 || len(s.Val) != val || len(s.Test) != 20 || !slices.Equal(s.Classes, []string{"cat",
				"dog"}) {
				t.Errorf("%+v: %d, %d and %d images of %v", c, len(s.Train), len(s.Val), len(s.Test), s.Classes)
			}
			if len(s.Notes) != notes || notes == 1 && !strings.Contains(s.Notes[0], "is used as the test split") {
				t.Errorf("%+v: notes %q", c, s.Notes)
			}
			layout := map[string]string{"": "SPLIT/CLASS/", "art/": "SPLIT/DOMAIN/CLASS/"}[domain]
			if s.Layout != layout || len(s.Domains) != len(domain)/4 {
				t.Errorf("%+v: layout %q, domains %v", c, s.Layout, s.Domains)
			}
		}
	}
}

// A training folder alone is split by HoldOut, class by class: 8 of 10 images are for training.
func TestTrainAlone(t *testing.T) {
	s := mustOpen(t, source.Config{Set: "folder", Root: tree(t, 10, "train/cat", "train/dog")})
	if len(s.Train) != 16 || len(s.Test) != 4 || len(s.Domains) != 0 || len(s.Notes) != 1 ||
		!strings.Contains(s.Notes[0], "held out") {
		t.Errorf("%d and %d images, domains %v, notes %q", len(s.Train), len(s.Test), s.Domains, s.Notes)
	}
}

// If two layouts are possible, the error names both; data.layout selects one if that is possible.
func TestAmbiguousFolders(t *testing.T) {
	for _, c := range []struct {
		dirs    []string
		words   []string
		layout  string // that can still read it; "" for none
		domains int
	}{
		{[]string{"train/cat", "Training/cat", "test/cat"}, []string{"Training", "one split", "data.layout: domains"},
			"domains", 3},
		{[]string{"train/cat", "val/cat", "unlabeled/cat"}, []string{"unlabeled", "away", "data.layout: domains"},
			"domains", 3},
		{[]string{"val/cat", "test/cat"}, []string{"none of them is for", "data.layout: domains"}, "domains", 2},
		{[]string{"test/cat"}, []string{"none of them is for training", "data.layout: domains"}, "domains", 1},
		{[]string{"train", "test"}, []string{"class folders are missing", "data.layout: classes"}, "classes", 0},
		{[]string{"train"}, []string{"class folders are missing", "data.layout: classes"}, "classes", 0},
		{[]string{"cat/train", "cat/test", "dog/train", "dog/test"}, []string{"splits must be the outermost",
			"data.layout: domains"}, "domains", 2},
		{[]string{"art/train", "art/val", "art/x"}, []string{"outermost", "data.layout: domains"}, "domains", 1},
		{[]string{"art/train/cat", "art/test/cat"}, []string{"outermost", "SPLIT/DOMAIN/CLASS/"}, "", 0},
		{[]string{"train/art/train", "train/art/test"}, []string{"outermost"}, "split-domains", 1},
		{[]string{"train/cat", "test"}, []string{"test holds no class folders", "no labels", "train"}, "", 0},
		{[]string{"train/cat", "bus"}, []string{"splits (train)", "move bus away", "data.layout: classes"}, "", 0},
		{[]string{"cat", "dog", "test"}, []string{"test holds images", "no labels", "data.layout: classes"}, "classes",
			0},
		{[]string{"cat", "train", "Validation"}, []string{"Validation holds images", "data.layout: classes"}, "classes",
			0},
		{[]string{"cat", "pets/dog"}, []string{"pets holds folders", "cat holds none"}, "", 0},
	} {
		cfg := source.Config{Set: "folder", Root: tree(t, 10, c.dirs...)}
		_, err := openSet(cfg)
		goldentest.WantError(t, err, c.words...)
		if c.layout == "" {
			continue
		}
		cfg.Layout = c.layout
		if s, err := openSet(cfg); err != nil || len(s.Domains) != c.domains {
			t.Errorf("%v as %s: %v", c.dirs, c.layout, err)
		}
	}
}

// Files that archives and desktops leave behind are ignored, and classes without test images get a note.
func TestClutterAndGaps(t *testing.T) {
	root := datatest.Tree(t, "train/cat/1.png", "train/cat/._1.png", "train/dog/1.png", "train/.DS_Store",
		"test/cat/2.png", "test/dog/", "__MACOSX/train/cat/1.png", "@eaDir/x.png")
	s := mustOpen(t, source.Config{Set: "folder", Root: root})
	if len(s.Train) != 2 || len(s.Test) != 1 || len(s.Notes) != 1 || !strings.Contains(s.Notes[0],
		"dog holds no images") {
		t.Errorf("%d and %d images, notes %q", len(s.Train), len(s.Test), s.Notes)
	}
}
