package source

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// under returns paths relative to a folder, in one line; - for none.
func under(root string, paths ...string) string {
	var out []string
	for _, p := range paths {
		if rel, err := filepath.Rel(root, p); p != "" && err == nil {
			out = append(out, filepath.ToSlash(rel))
		} else {
			out = append(out, "-")
		}
	}
	return strings.Join(out, " ")
}

// Files are found whatever case and punctuation their names have; an exact name takes precedence.
func TestFinder(t *testing.T) {
	root := datatest.Tree(t, "Data_Set/Train-Images/a.png", "Data_Set/list.txt", "data set/", "data-set/x.txt",
		"split_zhou_A.json", "other/SPLIT_ZHOU_a.json",
		"other/split_zhou_b.json/", "two/split_zhou_a.json", "two/split_zhou_b.json")
	f := Finder{}
	at := func(name string) string { return filepath.Join(root, name) }
	for name, want := range map[string]string{"data set": "data set", "data-set/x.txt": "data-set/x.txt",
		"Data_Set/trainimages/A.png": "Data_Set/Train-Images/a.png",
		"Data_Set/none":              "-", "Data_Set/list.txt/x": "-", "none/x": "-",
		"./Data_Set//LIST.txt": "Data_Set/list.txt"} {
		got, err := f.Lookup(root, name)
		if err != nil || under(root, got) != want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	for _, c := range []struct {
		folder bool
		dirs   []string
		names  []string
		want   string
	}{{true, []string{"none", "other", "."}, []string{"x", "Data_Set"}, "Data_Set"},
		{false, []string{"Data_Set"}, []string{"trainimages", "LIST.txt"}, "Data_Set/list.txt"},
		{true, []string{"Data_Set"}, []string{"list.txt"}, "-"}} {
		dirs := slices.Clone(c.dirs)
		for i := range dirs {
			dirs[i] = at(dirs[i])
		}
		if got, err := f.First(c.folder, dirs, c.names...); err != nil || under(root, got) != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
	if got, err := f.Candidates(root, "other", "none", "OTHER", "two"); err != nil ||
		under(root, got...) != ". other two" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := f.Candidates(at("none")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Error(err)
	}
	for _, c := range []struct{ dir, needs, want string }{
		{"Data_Set", "list.txt,trainimages", "Data_Set/list.txt Data_Set/Train-Images"},
		{"Data_Set", "list.txt,none", ""},
		{"Data_Set", "list.txt,?none", "Data_Set/list.txt -"}, {"Data_Set", "none|list.txt", "Data_Set/list.txt"},
		{"Data_Set/Train-Images", "images/train_images", "Data_Set/Train-Images"},
		{"Data_Set/Train-Images", "train_images,list.txt", ""}} {
		if got, err := f.All(at(c.dir), strings.Split(c.needs, ",")); err != nil || under(root, got...) != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	for _, c := range []struct{ dir, name, want string }{{".", "", "split_zhou_A.json"},
		{"other", "", "other/SPLIT_ZHOU_a.json"}, {"two", "", "-"},
		{"two", "split_zhou_b.json", "two/split_zhou_b.json"}, {"other", "split_zhou_x.json",
			"other/SPLIT_ZHOU_a.json"}} {
		if got, err := f.Split(at(c.dir), c.name); err != nil || under(root, got) != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
	if _, err := f.Split(at("none"), "x"); err == nil {
		t.Error("a folder that does not exist is listed")
	}
	if !SameName("Caltech-101", "caltech_101") || SameName("a1", "a2") || NormalizeName("aZ-09{`/:") != "az09" {
		t.Error("names")
	}
}

// Hidden files, what desktops leave and what runs wrote are not listed; the order ignores case.
func TestEntries(t *testing.T) {
	root := datatest.Tree(t, ".hidden", "Thumbs.DB", "b.txt", "A.png", "a.png", "c/x.JPG", "c/e/", "__macosx/",
		"runs/new/seed-1/experiment.json", "runs/comparison/a.png", "run/experiment.json", "sweep/sweep.json")
	list, err := Entries(root)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if err != nil || fmt.Sprint(names) != "[A.png a.png b.txt c]" {
		t.Error(names, err)
	}
	if _, err := Entries(filepath.Join(root, "b.txt")); err == nil ||
		!strings.HasSuffix(err.Error(), "b.txt is a file: expected a folder with images (data.root)") {
		t.Error(err)
	}
	for dir, want := range map[string]string{".": "A.png", "c": "c/x.JPG", "c/e": "-"} {
		if got, err := FirstImage(filepath.Join(root, dir)); err != nil || under(root, got) != want {
			t.Error(dir, got, err)
		}
	}
	goldentest.NoError(t, os.Symlink(strings.Repeat("x", 999), filepath.Join(root, "c/link.png")))
	_, err = Entries(filepath.Join(root, "c"))
	goldentest.WantError(t, err, "cannot read a folder entry: ", "name too long")
}

// A file in a class folder that is no image is refused, or left out with its reason. Classes that are one but for case
// are refused; a class without images is a note in a split for tests.
func TestWalk(t *testing.T) {
	root := datatest.Tree(t, "d/big_cat/1.png", "d/big_cat/note.txt", "d/big_cat/sub/", "d/empty/", "e/Dog/1.png",
		"e/dog/2.png", "e/big cat/3.png")
	filetest.Write(t, filepath.Join(root, "d/big_cat/0.png"), "")
	goldentest.NoError(t, os.Symlink("gone", filepath.Join(root, "d/big_cat/link.png")))
	goldentest.NoError(t, os.Symlink("loop.png", filepath.Join(root, "d/big_cat/loop.png")))
	at := func(names ...string) []string {
		return convert.Slice(names, func(n string) string { return filepath.Join(root, n) })
	}
	w := &Walk{Root: root}
	goldentest.NoError(t, w.Classes("train", "", at("d/big_cat")))
	if _, err := w.Set(""); err == nil || !strings.Contains(err.Error(), "0.png is empty; ") ||
		!strings.HasSuffix(err.Error(), "sub is a folder inside a class folder: remove or repair these 5 files, or "+
			"set data.corrupt: skip") {
		t.Error(err)
	}
	w = &Walk{Root: root, Skip: true}
	if err := w.Classes("test", "Art", at("d/big_cat", "d/empty")); err != nil || len(w.Found) != 1 ||
		w.Found[0].Class != "big cat" ||
		w.Found[0].Domain != "Art" || w.Found[0].Example.ID != "d/big_cat/1.png" || w.Found[0].Split != "test" {
		t.Errorf("%+v, %v", w.Found, err)
	}
	var reasons []string
	for _, s := range w.Skipped {
		reasons = append(reasons, under(root, s.Name)+" "+s.Reason)
	}
	if want := []string{"d/big_cat/0.png is empty", "d/big_cat/link.png is a link that leads to no file",
		"d/big_cat/loop.png is a link that leads to no file",
		"d/big_cat/note.txt is not an image file (.png, .jpg, .jpeg, .webp, .bmp, .gif, .tif, .tiff)",
		"d/big_cat/sub is a folder inside a class folder"}; !slices.Equal(reasons, want) {
		t.Errorf("%q", reasons)
	}
	if want := fmt.Sprintf("%s: %s holds no images", root, at("d/empty")[0]); !slices.Equal(w.Notes, []string{want}) {
		t.Errorf("%q, want %s", w.Notes, want)
	}
	for _, split := range []string{"train", ""} {
		if err := w.Classes(split, "", at("d/empty")); err == nil ||
			!strings.Contains(err.Error(), "d/empty holds no images: expected files that end in .png") {
			t.Error(err)
		}
	}
	goldentest.NoError(t, w.Classes("val", "", at("d/empty")))
	if err := w.Classes("train", "", at("e/Dog", "e/dog")); err == nil ||
		!strings.HasSuffix(err.Error(), "are the same class except for case or underscores: keep one") {
		t.Error(err)
	}
	if _, err := w.Set(""); err == nil || !strings.Contains(err.Error(),
		`class "big cat" has no training images: expected a folder of that name under train`) {
		t.Error(err)
	}
	w = &Walk{Root: root, Order: func(a, b string) int { return -strings.Compare(a, b) }}
	goldentest.NoError(t, w.Classes("train", "x", at("e/Dog", "e/big cat")))
	s, err := w.Set("")
	if err != nil || !slices.Equal(s.Classes, []string{"big cat", "Dog"}) ||
		!slices.Equal(s.Domains, []string{"x"}) || len(s.Train) != 2 ||
		s.Train[0].Label != 1 || s.Train[1].Label != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// By hand: of ten images of a class in a domain the last two are tested. Over a whole domain, of 5 images of each of
// two classes the last two of the second class are.
func TestHeldOutImages(t *testing.T) {
	var files []string
	for i := range 10 {
		files = append(files, fmt.Sprintf("%s/%d.png", "ab"[i/5:i/5+1], i))
	}
	root := datatest.Tree(t, files...)
	for _, c := range []struct {
		byDomain bool
		want     string
	}{{true, "b/8.png b/9.png"}, {false, "a/4.png b/9.png"}} {
		w := &Walk{Root: root, ByDomain: c.byDomain}
		goldentest.NoError(t, w.Classes("", "", []string{filepath.Join(root, "a"), filepath.Join(root, "b")}))
		s, err := w.Set("")
		if err != nil || s.Domains != nil {
			t.Fatal(s, err)
		}
		var tested []string
		for _, e := range s.Test {
			tested = append(tested, e.ID)
		}
		if got := strings.Join(tested, " "); got != c.want || len(s.Train) != 8 {
			t.Errorf("by domain %v: %s, want %s", c.byDomain, got, c.want)
		}
	}
}

// Folders of splits are read by their split. What is missing is replaced, and a note says so.
func TestSplitFolders(t *testing.T) {
	root := datatest.Tree(t, "train/a/", "val/a/", "Test_Images/a/", "testing/a/", "empty/")
	for _, c := range []struct{ of, reads, note, says string }{
		{"train val testing", "train:train val:val test:testing", "", ""},
		{"train testing", "train:train test:testing", "", ""},
		{"train val", "train:train test:val",
			"x: there is no folder of test images: val is used as the test split, and there is no validation split",
			""},
		{"train", ":train",
			root +
				": there is no folder of test or validation images: two of every ten images " +
				"of each class of train are held out for testing", ""},
		{"train testing Test_Images", "", "", "testing and " + filepath.Join(root, "Test_Images") +
			" all hold the test split: keep one"},
	} {
		w, got := &Walk{}, []string{}
		var dirs []string
		for name := range strings.FieldsSeq(c.of) {
			dirs = append(dirs, filepath.Join(root, name))
		}
		splits, others := SplitsAmong(append(dirs, filepath.Join(root, "empty")))
		if FolderNames(others) != "empty" {
			t.Error(others)
		}
		for range 2 { // a note for many domains is there once
			got = nil
			err := w.Splits("x", splits, func(split string, in []string) error {
				got = append(got, split+":"+filepath.Base(filepath.Dir(in[0])))
				return nil
			})
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.of, err)
			}
		}
		if strings.Join(got, " ") != c.reads || strings.Join(w.Notes, "|") != c.note {
			t.Errorf("%s: %q, %q", c.of, got, w.Notes)
		}
	}
	if err := (&Walk{}).Splits("x", map[string][]string{"train": {filepath.Join(root, "empty")}}, nil); err == nil ||
		!strings.HasSuffix(err.Error(), "empty holds no folders: expected one folder per class or domain in it") {
		t.Error(err)
	}
	for names, want := range map[string]bool{"train test": true, "train val": true, "train": true, "train cat": false,
		"train val cat": true, "val cat": false,
		"cat dog": false, "": false} {
		if got := LookLikeSplits(strings.Fields(names)); got != want {
			t.Errorf("%s: %v", names, got)
		}
	}
	if got := FolderNames([]string{"x/b", "", "y/A", "z/b"}); got != "A, b" {
		t.Error(got)
	}
}

func TestSpelling(t *testing.T) {
	s := Spelling{}
	for _, name := range []string{"Big Cat", "dog", "Big Cat"} {
		goldentest.NoError(t, s.Check("class", "line 1", name))
	}
	if err := s.Check("class", "line 9", "big_cat"); err == nil ||
		err.Error() != `line 9: class "big_cat" is "Big Cat" in line 1: expected one spelling` {
		t.Error(err)
	}
	if got := UnderscoresToSpaces([]string{"a_b", "c"}); !slices.Equal(got, []string{"a b", "c"}) {
		t.Error(got)
	}
}

// A list is read line by line, blank lines apart; errors name the line.
func TestLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.txt")
	put := func(text string) {
		t.Helper()
		filetest.Write(t, file, text)
	}
	put("\ufeff a \n\n b\r\nc")
	var got []string
	if err := EachLine(file, func(where, line string) error {
		got = append(got, strings.TrimPrefix(where, file)+" "+line)
		return nil
	}); err != nil || !slices.Equal(got, []string{": line 1 a", ": line 3 b", ": line 4 c"}) {
		t.Errorf("%q, %v", got, err)
	}
	if err := EachLine(file, func(where, line string) error { return io.ErrNoProgress }); err != io.ErrNoProgress {
		t.Error(err)
	}
	put("a\n" + strings.Repeat("x", 70000))
	if err := EachLine(file, func(string, string) error { return nil }); err == nil ||
		err.Error() != file+": line 2 is longer than 65536 bytes" {
		t.Error(err)
	}
	dir := filepath.Dir(file)
	if err := EachLine(dir, nil); err == nil || err.Error() != dir+" is a folder: expected a file" {
		t.Error(err)
	}
	goldentest.NoError(t, os.Truncate(file, MaxList+1))
	if err := EachLine(file, nil); err == nil ||
		err.Error() != file+" has 268435457 bytes: a list of images has at most 268435456" {
		t.Error(err)
	}
	var into []int
	for text, says := range map[string]string{"[1,2]": "", "[1,": ": the JSON ends early: expected numbers",
		"": ": the JSON ends early: expected numbers", "[x]": "invalid character"} {
		put(text)
		if err := DecodeList(file, &into, "numbers"); (err == nil) != (says == "") || err != nil &&
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	d := json.NewDecoder(strings.NewReader("[{"))
	goldentest.NoError(t, ReadDelim(d, '['))
	if err := ReadDelim(d, '['); err == nil || err.Error() != `"{" where "[" was expected` {
		t.Error(err)
	}
	if err := ReadDelim(d, '}'); err == nil || err.Error() != "the JSON ends early" {
		t.Error(err)
	}
}
