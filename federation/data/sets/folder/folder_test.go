package folder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name             string
		files            []string
		classes, domains []string
		train, val, test []string
	}{
		{"classes, case and underscores", []string{"b_two/1.png", "b_two/.hidden", "A/2.png", "A/10.PNG.png",
			"README.txt", ".git/x"},
			[]string{"A", "b two"}, nil,
			[]string{"A/10.PNG.png=0.0", "b_two/1.png=1.0"}, nil, []string{"A/2.png=0.0"}},
		{"domains", []string{"web/dog/1.png", "web/cat/1.png", "cam/cat/1.png", "cam/dog/1.png"},
			[]string{"cat", "dog"}, []string{"cam", "web"},
			[]string{"cam/cat/1.png=0.0", "cam/dog/1.png=1.0"}, nil,
			[]string{"web/cat/1.png=0.1", "web/dog/1.png=1.1"}},
		{"splits", []string{"train/cat/1.png", "train/dog/1.png", "test/cat/2.png", "val/dog/3.png"},
			[]string{"cat", "dog"}, nil,
			[]string{"train/cat/1.png=0.0", "train/dog/1.png=1.0"}, []string{"val/dog/3.png=1.0"},
			[]string{"test/cat/2.png=0.0"}},
		{"splits of domains", []string{"Train/a/cat/1.png", "Test/a/cat/2.png", "Test/b/cat/3.png",
			"Train/b/cat/4.png"},
			[]string{"cat"}, []string{"a", "b"},
			[]string{"Train/a/cat/1.png=0.0", "Train/b/cat/4.png=0.1"}, nil,
			[]string{"Test/a/cat/2.png=0.0", "Test/b/cat/3.png=0.1"}},
		{"a class called train is no split", []string{"train/1.png", "bus/1.png"}, []string{"bus", "train"}, nil,
			[]string{"bus/1.png=0.0", "train/1.png=1.0"}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustOpen(t, source.Config{Set: "folder", Root: datatest.Tree(t, c.files...)})
			if !slices.Equal(s.Classes, c.classes) || !slices.Equal(s.Domains, c.domains) {
				t.Errorf("classes %q, domains %q", s.Classes, s.Domains)
			}
			if !slices.Equal(settest.IDs(s.Train), c.train) || !slices.Equal(settest.IDs(s.Val), c.val) ||
				!slices.Equal(settest.IDs(s.Test), c.test) {
				t.Errorf("train %v\nval %v\ntest %v", settest.IDs(s.Train), settest.IDs(s.Val), settest.IDs(s.Test))
			}
		})
	}
}

// TestHoldOutPerClass: the classes of a folder are split separately. By hand: of two images one is a test image, of
// fifteen three (the last two of the first ten, and one of the other five), of one none. Over the whole sorted list,
// two of every ten would be both images of the fifth class of seven, and two, four and two of three classes of fifteen.
func TestHoldOutPerClass(t *testing.T) {
	for _, c := range []struct {
		images, classes int
		test            int // of each class
		trains, tests   []string
	}{
		{2, 7, 1, []string{"c0/0.png"}, []string{"c0/1.png"}},
		{15, 3, 3, []string{"c2/07.png", "c2/13.png"}, []string{"c2/08.png", "c2/09.png", "c2/14.png"}},
	} {
		var files []string
		for class := range c.classes {
			for i := range c.images {
				files = append(files, fmt.Sprintf("c%d/%0*d.png", class, len(fmt.Sprint(c.images-1)), i))
			}
		}
		s := mustOpen(t, source.Config{Set: "folder", Root: datatest.Tree(t, files...)})
		for class, n := range s.Counts(s.Test) {
			if n != c.test || s.Counts(s.Train)[class] != c.images-c.test {
				t.Errorf("class %d of %d images: %d for testing", class, c.images, n)
			}
		}
		has := func(list []data.Example, id string) bool {
			return slices.ContainsFunc(list, func(e data.Example) bool { return e.ID == id })
		}
		for _, id := range c.trains {
			if !has(s.Train, id) {
				t.Errorf("%s is no training image", id)
			}
		}
		for _, id := range c.tests {
			if !has(s.Test, id) {
				t.Errorf("%s is no test image", id)
			}
		}
	}
}

// TestHoldOutPerDomain: a class is split inside each domain. By hand: a class of two images in each of two domains has
// a test image in both; the images of a class with one image in each of three domains form one group of three, of which
// the last is a test image.
func TestHoldOutPerDomain(t *testing.T) {
	s := mustOpen(t, source.Config{Set: "folder", Root: datatest.Tree(t, "a/cat/1.png", "a/cat/2.png", "b/cat/1.png",
		"b/cat/2.png", "a/dog/1.png", "b/dog/1.png", "c/dog/1.png")})
	if got := settest.IDs(s.Test); !slices.Equal(got, []string{"a/cat/2.png=0.0", "b/cat/2.png=0.1",
		"c/dog/1.png=1.2"}) {
		t.Errorf("test images %v", got)
	}
}

func TestFolderErrors(t *testing.T) {
	root := func(files ...string) source.Config {
		return source.Config{Set: "folder", Root: datatest.Tree(t, files...)}
	}
	for _, c := range []struct {
		cfg   source.Config
		words []string
	}{
		{source.Config{Set: "folder", Root: filepath.Join(t.TempDir(), "nowhere")}, []string{"nowhere",
			"does not exist",
			"data.root"}},
		{source.Config{Set: "folder"}, []string{"data.root"}},
		{source.Config{Set: "folder", Root: filepath.Join(datatest.Tree(t, "a.txt"), "a.txt")}, []string{"a.txt",
			"is a file"}},
		{root(), []string{"holds no folders", "DOMAIN/CLASS/"}},
		{root("cat/1.png", "dog/"), []string{"dog", "holds no images", ".png"}},
		{root("cat/1.png", "cat/x.doc", "dog/2.png", "dog/notes.txt"), []string{"x.doc is not",
			"notes.txt is not", "these 2 files"}},
		{root("cat/1.png", "dog/notes.txt"), []string{"notes.txt", "is not an image file", "data.corrupt: skip"}},
		{root("cat/1.png", "x/dog/1.png"), []string{"holds folders", "holds none"}},
		{root("a/cat/1.png", "a/dog/"), []string{"dog", "holds no images"}},
		{root("train/cat/1.png", "test/cat/1.png", "test/dog/1.png"), []string{`"dog"`, "no training images"}},
		{root("train/cat/1.png", "test/"), []string{"test", "holds no folders"}},
		{root("dog/1.png", "Dog/1.png"), []string{"same class"}},
		{root("cat/1.png", "cat/deep/1.png"), []string{"cat/1.png", "is next to folders"}},
		{source.Config{Set: "folder", Root: datatest.Tree(t, "cat/1.png"), ClassNames: map[string]string{"cow": "moo"}},
			[]string{`"cow"`, "cat"}},
		{source.Config{Set: "folder", Root: datatest.Tree(t, "a/1.png", "b/1.png"),
			ClassNames: map[string]string{"a": "b"}},
			[]string{"class_names", `"b"`}},
	} {
		_, err := openSet(c.cfg)
		goldentest.WantError(t, err, c.words...)
	}
}

func TestSkipCountsWhatIsNoImage(t *testing.T) {
	dir := datatest.Tree(t, "cat/1.png", "cat/notes.txt", "dog/2.png", "dog/3.png", "dog/5.png", "dog/Thumbs.db")
	filetest.Write(t, filepath.Join(dir, "dog", "4.jpg"), "")
	bad := filepath.Join(dir, "dog", "2.png")
	raw := filetest.Read(t, bad)
	filetest.Write(t, bad, raw[:len(raw)/2])
	s := mustOpen(t, source.Config{Set: "folder", Root: dir, Corrupt: data.Skip})
	if len(s.Train) != 3 || len(s.Test) != 1 || len(s.Skipped) != 2 {
		t.Fatalf("%d and %d kept, skipped %v", len(s.Train), len(s.Test), s.Skipped)
	}
	calls := 0
	if err := s.DropUnreadable(context.Background(), 2, datatest.Decode, func(done, total int) {
		if calls++; done != calls || total != 4 {
			t.Errorf("progress %d of %d", done, total)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if got := settest.IDs(s.Train); !slices.Equal(got, []string{"cat/1.png=0.0", "dog/3.png=1.0"}) || calls != 4 {
		t.Errorf("kept %v after %d calls", got, calls)
	}
	if last := s.Skipped[2]; last.Name != bad {
		t.Errorf("skipped %v", last)
	}
	filetest.Write(t, filepath.Join(dir, "dog", "3.png"), "x")
	goldentest.WantError(t, s.DropUnreadable(context.Background(), 2, datatest.Decode, nil), `"dog"`,
		"none of its 1")
}

func TestClassNames(t *testing.T) {
	s := mustOpen(t, source.Config{Set: "folder", Root: datatest.Tree(t, "0/1.png", "1/1.png", "Alarm_Clock/1.png"),
		ClassNames: map[string]string{"0": "zero", "alarm clock": "clock"}})
	if !slices.Equal(s.Classes, []string{"zero", "1", "clock"}) {
		t.Errorf("%q", s.Classes)
	}
}

func TestDigestFollowsFiles(t *testing.T) {
	dir := datatest.Tree(t, "a/1.png", "a/2.png", "b/1.png")
	digest := func() string {
		s := mustOpen(t, source.Config{Set: "folder", Root: dir})
		return data.Digest(slices.Concat(s.Train, s.Test))
	}
	first := digest()
	if digest() != first {
		t.Error("unstable")
	}
	filetest.Write(t, filepath.Join(dir, "a", "2.png"), "changed")
	second := digest()
	goldentest.NoError(t, os.Rename(filepath.Join(dir, "a", "2.png"), filepath.Join(dir, "a", "3.png")))
	if third := digest(); first == second || second == third {
		t.Errorf("%s %s %s", first, second, third)
	}
}
