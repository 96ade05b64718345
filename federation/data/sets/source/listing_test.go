package source

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/formats/pickle"
	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// splitsOf counts the splits of a list's images by class.
func splitsOf(l *Listing) string {
	counts := map[string]int{}
	for _, it := range l.Items {
		counts[fmt.Sprint(it.Label, it.Split)]++
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprint(k, " ", counts[k]))
	}
	return strings.Join(out, ", ")
}

// By hand: of ten images CoOp's shares are 5, 2 and 3. Of 5, half of 5 is 2.5, rounded to even 2, and one fifth is 1.
// Of two, one is trained on and one tested; one alone is trained on. Of 4, val's fifth rounds to 1. Without a test
// share val gets the rest.
func TestDraws(t *testing.T) {
	list := func(split string, sizes ...int) *Listing {
		l := &Listing{Names: map[int]string{}}
		for label, n := range sizes {
			l.Names[label] = fmt.Sprint("class ", label)
			for i := range n {
				l.Items = append(l.Items, Item{Path: fmt.Sprint(i), Label: label, Split: split})
			}
		}
		return l
	}
	l := list("", 10, 5, 2, 1, 4)
	l.DrawSplit()
	if got := splitsOf(
		l); got != "0test 3, 0train 5, 0val 2, 1test 2, 1train 2, 1val 1, 2test 1, 2train 1, "+
		"3train 1, 4test 1, 4train 2, 4val 1" ||
		!strings.HasPrefix(l.Notes[0], "no split file: 50/20/30 of every class") {
		t.Errorf("%s, %q", got, l.Notes)
	}
	l = list("trainval", 10, 3, 2, 1)
	l.Items = append(l.Items, Item{Path: "x", Label: 0, Split: "test"})
	l.DrawVal()
	if got := splitsOf(l); got != "0test 1, 0train 8, 0val 2, 1train 2, 1val 1, 2train 2, 3train 1" ||
		len(l.Notes) != 1 {
		t.Errorf("%s, %q", got, l.Notes)
	}
	a, b := list("", 10), list("", 10)
	slices.Reverse(b.Items)
	b.Names[0] = "another"
	a.draw("", .5, .2)
	b.draw("", .5, .2)
	build := func(l *Listing) []string {
		return convert.Slice(l.Items, func(it Item) string { return it.Path + it.Split })
	}
	if slices.Equal(build(a), build(b)) {
		t.Error("the class's name does not change the draw")
	}
	for _, c := range []struct {
		train, val float64
		n          int
		want       string
	}{{.9, .1, 5, "0train 4, 0val 1"}, {.5, .5, 3, "0train 2, 0val 1"}, {.9, 0, 3, "0test 1, 0train 2"},
		{.4, .6, 1, "0train 1"}, {.6, .3, 2, "0test 1, 0train 1"}, {.05, .9, 2, "0test 1, 0train 1"}} {
		l := list("", c.n)
		if l.draw("", c.train, c.val); splitsOf(l) != c.want {
			t.Errorf("%+v: %s", c, splitsOf(l))
		}
	}
	if (*Listing)(nil).OfficialSplit("x") != nil || len(l.OfficialSplit("x").Notes) != 2 {
		t.Error(l.Notes)
	}
}

// A list's images have relative paths, and labels with one name each.
func TestAddToAList(t *testing.T) {
	l := &Listing{}
	for says, it := range map[string]Item{`w: path "/x" is absolute or leaves the folder`: {Path: "/x"},
		`w: path "../x" is absolute`: {Path: "../x"},
		`w: path "" is absolute`:     {}, "w: label -1 is out of range: expected 0 to 1048576": {Path: "x", Label: -1},
		"w: label 1048577 is out of range": {Path: "x", Label: MaxLabel + 1},
		"w: label 7 has no class name":     {Path: "x", Label: 7}} {
		if err := l.Add("w", it); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%+v: %v", it, err)
		}
	}
	for _, label := range []int{0, MaxLabel} {
		goldentest.NoError(t, l.AddNamed("w", "big_cat", Item{Path: "a/./b", Label: label}))
	}
	if l.Names[0] != "big cat" || len(l.Items) != 2 || l.Items[0].Path != "a/b" {
		t.Errorf("%+v", l)
	}
	for name, says := range map[string]string{
		"dog":   `w: label 0 is "dog" here and "big cat" before: expected one name per label`,
		" ":     `w: " " is not a class name`,
		"a\x00": "is not a class name", "\xff": "is not a class name"} {
		if err := l.AddNamed("w", name, Item{Path: "x"}); err == nil || !strings.Contains(err.Error(), says) ||
			len(l.Items) != 2 {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A set has the list's images that exist. Labels are numbered from 0 in their order.
func TestSetOfAList(t *testing.T) {
	root := datatest.Tree(t, "i/a.png", "i/b.png", "i/c.png", "i/sub/")
	filetest.Write(t, filepath.Join(root, "i/empty.png"), "")
	build := func(items ...Item) *Listing {
		return &Listing{List: "list", Root: root, Images: filepath.Join(root, "i"),
			Names: map[int]string{3: "x", 5: "y", 6: "x"}, Items: items}
	}
	a, b, c := Item{Path: "a.png", Label: 5, Split: "train"}, Item{Path: "b.png", Label: 3, Split: "train",
		Domain: 2}, Item{Path: "c.png", Label: 3, Split: "test"}
	s, err := build(a, b, c).Set(Config{})
	if err != nil || !slices.Equal(s.Classes, []string{"x", "y"}) || s.Train[0].Label != 1 ||
		s.Train[1].Domain != 2 || s.Test[0].ID != "i/c.png" ||
		s.Test[0].Stamp == "" || !slices.Equal(s.Notes, []string{
		"labels run to 5 but only 2 of them have images: renumbered in order"}) {
		t.Errorf("%+v, %v", s, err)
	}
	own := Item{Path: "none", Label: 3, Split: "test", Example: &data.Example{ID: "own"}}
	if s, err := build(a, b, own).Set(Config{}); err != nil || s.Test[0].ID != "own" || s.Test[0].Label != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	six := Item{Path: "c.png", Label: 6, Split: "test"}
	repeated := build(a, b, six)
	repeated.RepeatedNames, repeated.TestOnly = true, true
	if s, err := repeated.Set(Config{}); err != nil || !slices.Equal(s.Classes, []string{"x", "y", "x 6"}) ||
		len(s.Notes) != 2 ||
		s.Notes[0] != `labels 3 and 6 are both "x": the second becomes "x 6"` {
		t.Errorf("%+v, %v", s, err)
	}
	bad := []Item{a, b, c, {Path: "none", Label: 3, Split: "test"}, {Path: "sub", Label: 3, Split: "test"},
		{Path: "empty.png", Label: 3, Split: "test"}, {Path: "loop.png", Label: 3, Split: "test"}}
	goldentest.NoError(t, os.Symlink("loop.png", filepath.Join(root, "i/loop.png")))
	for _, c := range []struct {
		l    *Listing
		says string
	}{{build(), "list lists no images"}, {build(a, a), "list lists a.png twice: expected every image once"},
		{build(a, b, six), `list: labels 3 and 6 are both "x": expected one label per name`},
		{build(a, c), `list: class "x" has no training images`}, {build(a, b), "list lists no test images"},
		{build(bad...), "4 of the 7 images that list lists cannot be used; the first, " +
			filepath.Join(root, "i/none") +
			", is missing: complete the images"}} {
		if _, err := c.l.Set(Config{Corrupt: data.Refuse}); err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%v, want %s", err, c.says)
		}
	}
	s, err = build(bad...).Set(Config{Corrupt: data.Skip})
	if err != nil || len(s.Test) != 1 || len(s.Skipped) != 4 || s.Skipped[1].Reason != "is a folder" ||
		s.Skipped[2].Reason != "is empty" || s.Skipped[3].Reason != "is missing" {
		t.Errorf("%+v, %v", s, err)
	}
	for splits, want := range map[string]string{"train val": "train test 1", "train test val": "train test val 0",
		"train": "train 0"} {
		l := &Listing{}
		for split := range strings.FieldsSeq(splits) {
			l.Items = append(l.Items, Item{Split: split})
		}
		l.ValAsTest()
		got := convert.Slice(l.Items, func(it Item) string { return it.Split })
		if got := fmt.Sprint(strings.Join(got, " "), " ", len(l.Notes)); got != want {
			t.Errorf("%s: %s", splits, got)
		}
	}
	l := &Listing{Items: []Item{{Path: "b", Label: 1}, {Path: "B", Label: 0, Domain: 1}, {Path: "a", Label: 1},
		{Path: "a", Domain: 1}, {Path: "c", Label: 0}}}
	l.HoldOut()
	var got []string
	for _, it := range l.Items {
		got = append(got, fmt.Sprint(it.Domain, it.Label, it.Path, " ", it.Split))
	}
	if want := "[0 0c train 0 1a train 0 1b test 1 0a train 1 0B test]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestConfig(t *testing.T) {
	set := func() *data.Set {
		return &data.Set{Classes: []string{"Cat", "dog"}, Train: []data.Example{{ID: "1"}},
			Val: []data.Example{{ID: "2"}}, Test: []data.Example{{ID: "3"}}}
	}
	failed := errors.New("failed")
	kinds := []Kind{{Name: "folder", Layouts: []string{"classes"},
		Open: func(Config) (*data.Set, error) { return set(), nil }},
		{Name: "cifar", Template: "an image of a {}.", Open: func(Config) (*data.Set, error) { return set(), nil }},
		{Name: "synthetic", Open: func(Config) (*data.Set, error) { return nil, failed }}}
	good := Config{Set: "folder", Root: "x"}
	for says, change := range map[string]func(c *Config){
		"data.set: missing, but data.root is x: set data.set to folder":    func(c *Config) { c.Set = "" },
		"data.set: missing; name the images":                               func(c *Config) { *c = Config{} },
		`data.set: "y" is not known: use folder, cifar or synthetic`:       func(c *Config) { c.Set = "y" },
		`data.layout of set folder: "y" is not known: use auto or classes`: func(c *Config) { c.Layout = "y" },
		`data.root: set "folder" needs the folder that holds it`:           func(c *Config) { c.Root = "" },
		`data.split: "y" is not known: use given, pooled`:                  func(c *Config) { c.Split = "y" },
		`data.corrupt: "y" is not known: use refuse or skip`:               func(c *Config) { c.Corrupt = "y" },
		`data.class_names: the set has no class "bird": its classes are Cat, dog`: func(c *Config) {
			c.ClassNames = map[string]string{"bird": "z"}
		},
		`data.class_names: class "dog" becomes "Cat", which is no text of one line or used twice`: func(c *Config) {
			c.ClassNames = map[string]string{"DOG": "Cat"}
		},
		`data.class_names: class "Cat" becomes " ", which is no text`: func(c *Config) {
			c.ClassNames = map[string]string{"cat": " "}
		},
		`data.class_names: class "Cat" becomes "a\nb", which is no text`: func(c *Config) {
			c.ClassNames = map[string]string{"cat": "a\nb"}
		},
		"failed": func(c *Config) { c.Set, c.Root = "synthetic", "" },
	} {
		c := good
		change(&c)
		if _, err := OpenIn(kinds, c); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%+v: %v, want %s", c, err, says)
		}
	}
	for split, want := range map[string]string{"": "1 1 1 0", "given": "1 1 1 0", "pooled": "0 0 0 3",
		"pooled-no-val": "0 0 0 2"} {
		s, err := OpenIn(kinds, Config{Set: "cifar", Root: "x", Split: split,
			ClassNames: map[string]string{"CAT": "puma"}})
		goldentest.NoError(t, err)
		if got := fmt.Sprint(len(s.Train), len(s.Val), len(s.Test), len(s.Pool)); got != want ||
			s.Classes[0] != "puma" || s.Template != "an image of a {}." {
			t.Errorf("%s: %s, %+v", split, got, s)
		}
	}
	if s, err := OpenIn(kinds, good); err != nil || s.Name != "folder" || s.Template != "a photo of a {}." {
		t.Errorf("%+v, %v", s, err)
	}
	if err := NothingFound(failed, []string{"x"}); !errors.As(err, new(Missing)) || !errors.Is(err, failed) ||
		NothingFound(failed, []string{"x", "y"}) != failed {
		t.Error(err)
	}
}

// By hand, two images of two columns and one row: their pixels are read by planes, by columns or pixel by pixel, from
// memory, from a place in a file with a gap, or unpacked from it.
func TestPixels(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pixels")
	raw := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	filetest.Write(t, file, slices.Concat([]byte{99}, raw[:6], []byte{98}, raw[6:]))
	rgb := func(p *Pixels, i, x int) string {
		t.Helper()
		img, err := p.Image(i)
		goldentest.NoError(t, err)
		c := color.RGBAModel.Convert(img.At(x, 0)).(color.RGBA)
		return fmt.Sprint(c.R, c.G, c.B, c.A, img.Bounds())
	}
	const box = " (0,0)-(2,1)"
	for name, p := range map[string]*Pixels{"memory": {Raw: raw}, "file": {At: 1, Gap: 1},
		"unpacked": {Inflate: func(*os.File) (io.Reader, error) { return bytes.NewReader(raw), nil }}} {
		p.Path, p.Count, p.Width, p.Height, p.Channels = file, 2, 2, 1, 3
		for _, order := range []pixelOrder{planesByRow, PlanesByColumn} {
			if p.Order = order; rgb(p, 0, 0) != "1 3 5 255"+box || rgb(p, 1, 1) != "8 10 12 255"+box {
				t.Errorf("%s, %d: %s, %s", name, order, rgb(p, 0, 0), rgb(p, 1, 1))
			}
		}
		if p.Order = PixelByPixel; rgb(p, 0, 1) != "4 5 6 255"+box || rgb(p, 1, 0) != "7 8 9 255"+box {
			t.Errorf("%s: %s, %s", name, rgb(p, 0, 1), rgb(p, 1, 0))
		}
		p.Channels = 1
		if p.Gap = 0; name == "memory" && (rgb(p, 2, 1) != "6 6 6 255"+box || p.Size() != 2) {
			t.Errorf("%s: %s", name, rgb(p, 2, 1))
		}
		if _, err := p.Image(9); err == nil || err.Error() != file+": image 9: EOF" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Of two rows and two columns in columns, the second number is below the first.
	square := &Pixels{Raw: raw, Width: 2, Height: 2, Channels: 3, Order: PlanesByColumn}
	if got := rgb(square, 0, 1); got != "3 7 11 255 (0,0)-(2,2)" {
		t.Error(got)
	}
	if square.Channels = 1; rgb(square, 1, 1) != "7 7 7 255 (0,0)-(2,2)" {
		t.Error(rgb(square, 1, 1))
	}
	p := &Pixels{Path: file, Count: 2, Width: 2, Height: 1, Channels: 3, Stamp: "s"}
	list, err := p.Examples(dir, []int{4, 5}, 3)
	if err != nil || list[1].ID != "pixels#00001" || list[1].Label != 5 || list[1].Domain != 3 || list[1].Stamp != "s" {
		t.Errorf("%+v, %v", list, err)
	}
	if img, err := list[1].Load(); err != nil || color.RGBAModel.Convert(img.At(0, 0)).(color.RGBA).R != 6 {
		t.Error(img, err)
	}
	if _, err := p.Examples(dir, []int{1}, 0); err == nil || err.Error() != file+": 2 images but 1 labels" {
		t.Error(err)
	}
	for sides, says := range map[image.Point]string{{1, 1024}: "<nil>", {1024, 1}: "<nil>",
		{0, 1}: "images of 1 x 0 pixels", {1, 0}: "images of 0 x 1 pixels", {1, 1025}: "images of 1025 x 1 pixels",
		{1025, 1}: "images of 1 x 1025 pixels"} {
		err := (&Pixels{Width: sides.X, Height: sides.Y}).CheckSides()
		if got := fmt.Sprint(err); !strings.HasPrefix(got, says) {
			t.Errorf("%v: %s, want %s", sides, got, says)
		}
	}
	short := &Pixels{Path: file, Count: 2, Width: 2, Height: 1, Channels: 3,
		Inflate: func(*os.File) (io.Reader, error) { return bytes.NewReader(raw[:11]), nil }}
	for range 2 {
		_, err := short.Image(0)
		goldentest.WantError(t, err, "damaged after 11 of 12 bytes of its images: unexpected EOF: fetch it again")
	}
	byteType := pickle.Array{Shape: []int{2, 6}, Raw: raw}
	byteType.Dtype.Letter, byteType.Dtype.Size = 'u', 1
	if err := p.SetArray(&byteType); err != nil || !bytes.Equal(p.Raw, raw) {
		t.Error(err)
	}
	for says, change := range map[string]func(a *pickle.Array){"images of type u2: expected uint8": func(
		a *pickle.Array) {
		a.Dtype.Size = 2
	},
		"images of type i1": func(a *pickle.Array) { a.Dtype.Letter = 'i' },
		"in C order":        func(a *pickle.Array) { a.Fortran = true },
		"pixels of shape [2 5]: expected 2 images of 6 bytes": func(a *pickle.Array) { a.Shape = []int{2, 5} }} {
		a := byteType
		change(&a)
		goldentest.WantError(t, p.SetArray(&a), says)
	}
}
