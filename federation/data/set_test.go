package data

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/numerics"
)

// An image comes from a function, from bytes or from a file; errors name the file or the example.
func TestImageOfExample(t *testing.T) {
	size := func(r io.Reader) (image.Image, error) {
		b, err := io.ReadAll(r)
		if string(b) == "bad" {
			err = errors.New("not an image")
		}
		return image.NewGray(image.Rect(0, 0, len(b), 1)), err
	}
	f := files(t, map[string]string{"five": "12345", "broken": "bad"})
	for _, c := range []struct {
		e    Example
		want string
	}{{made(4)[3], "3 <nil>"}, {Example{Bytes: func() ([]byte, error) { return []byte("1234"), nil }}, "4 <nil>"},
		{f["five"], "5 <nil>"},
		{f["broken"], "0 " + f["broken"].Path + ": not an image"},
		{Example{ID: "b", Bytes: func() ([]byte, error) { return []byte("bad"), nil }}, "0 b: not an image"},
		{Example{Bytes: func() ([]byte, error) { return nil, io.ErrNoProgress }}, "0 " + io.ErrNoProgress.Error()}} {
		img, err := c.e.Image(size)
		width := 0
		if img != nil {
			width = img.Bounds().Dx()
		}
		if got := fmt.Sprint(width, " ", err); got != c.want {
			t.Errorf("%s: %s, want %s", c.e.Name(), got, c.want)
		}
	}
	bad := &BadImage{"x", io.EOF}
	if !errors.Is(bad, io.EOF) ||
		bad.Error() != "cannot read image x: EOF: repair or remove it, or set data.corrupt: skip" {
		t.Error(bad)
	}
}

func TestSplitsOfSet(t *testing.T) {
	s := &Set{Classes: []string{"a", "b"}}
	for i, split := range []string{"train", "val", "test", "train"} {
		s.Add(split, Example{ID: fmt.Sprint(i), Label: i % 2})
	}
	build := func() (out string) {
		for _, sp := range s.Splits() {
			out += fmt.Sprint(sp.Name, " ", names(*sp.Examples), Labels(*sp.Examples), "; ")
		}
		return out
	}
	if got := build(); got != "train [0 3] [0 1]; val [1] [1]; test [2] [0]; " {
		t.Error(got)
	}
	if got := s.PoolOr(s.Test); len(got) != 1 {
		t.Error(got)
	}
	with := *s
	with.MergeSplits(true)
	if got := names(with.PoolOr(nil)); fmt.Sprint(got) != "[0 3 1 2]" || with.Train != nil ||
		fmt.Sprint(with.Counts(with.Pool)) != "[2 2]" {
		t.Error(got)
	}
	gone := filepath.Join(t.TempDir(), "x")
	if _, err := (Example{Path: gone}).hash(); err == nil || !strings.HasPrefix(err.Error(),
		"cannot read image "+gone+": no such file") {
		t.Error(err)
	}
	if s.MergeSplits(false); build() != "pool [0 3 2] [0 1 0]; " {
		t.Error(build())
	}
	s = &Set{}
	if s.MergeSplits(true); s.Pool == nil || build() != "pool [] []; " {
		t.Error(build())
	}
	if got := Pick([]string{"a", "b", "c"}, []int{2, 0, 2}); fmt.Sprint(got) != "[c a c]" {
		t.Error(got)
	}
}

// A known value and a condition that holds are no errors.
func TestChecksOfKeys(t *testing.T) {
	for says, err := range map[string]error{"": errors.Join(OneOf("k", "a", "b", "a"), Need(true, "x")),
		`k: "c" is not known: use a or b`: OneOf("k", "c", "a", "b"), "7 is bad": Need(false, "%d is bad", 7)} {
		if (err == nil) != (says == "") || err != nil && err.Error() != says {
			t.Errorf("%v, want %s", err, says)
		}
	}
	good := NoLabelNoise()
	for says, change := range map[string]func(n *LabelNoise){"": func(n *LabelNoise) { n.Rate, n.Clients = 0, 0 },
		`data.label_noise.kind: "x"`:                                  func(n *LabelNoise) { n.Kind = "x" },
		`data.label_noise.among: "x"`:                                 func(n *LabelNoise) { n.Among = "x" },
		"data.label_noise.rate: 1; it must be at least 0 and below 1": func(n *LabelNoise) { n.Rate = 1 },
		"data.label_noise.rate: -0.1":                                 func(n *LabelNoise) { n.Rate = -.1 },
		"data.label_noise.clients: 1.5; it must lie":                  func(n *LabelNoise) { n.Clients = 1.5 }} {
		n := good
		change(&n)
		if err := n.Check(); (err == nil) != (says == "") || err != nil && !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	dir := t.TempDir()
	if _, err := Files([]string{dir}); err == nil || err.Error() != dir+" is a folder; name image files" {
		t.Error(err)
	}
	if _, err := Files([]string{filepath.Join(dir, "x")}); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// Unreadable images are left out of every split, and counted; a class that has none left to train on is an error.
func TestDropUnreadable(t *testing.T) {
	s := &Set{Classes: []string{"a", "b"}, Train: made(4, 1), Test: made(3, 2)}
	for i := range s.Train {
		s.Train[i].Label = i / 2
	}
	var calls []int
	err := s.DropUnreadable(context.Background(), 2, nil, func(done, total int) {
		if calls = append(calls, done); total != 7 {
			t.Errorf("%d in all", total)
		}
	})
	if err != nil || fmt.Sprint(names(s.Train), names(s.Test)) != "[made0 made2 made3] [made0 made1]" ||
		fmt.Sprint(calls) != "[1 2 3 4 5 6 7]" || fmt.Sprint(s.Skipped) != "[{made1 broken} {made2 broken}]" {
		t.Errorf("%v %v %v %v", names(s.Train), names(s.Test), s.Skipped, err)
	}
	for _, pool := range []bool{false, true} {
		s = &Set{Classes: []string{"a", "none", "b"}, Train: made(3, 1, 2)}
		s.Train[1].Label, s.Train[2].Label = 2, 2
		name := "train"
		if pool {
			s.MergeSplits(true)
			name = "pool"
		}
		goldentest.WantError(t, s.DropUnreadable(context.Background(), 1, nil, nil),
			`class "b": none of its 2 `+name+" images can be read")
	}
	s = &Set{Classes: []string{"a"}, Train: made(1), Test: made(1, 0)}
	if err := s.DropUnreadable(context.Background(), 1, nil, nil); err != nil || len(s.Test) != 0 {
		t.Error("a class may lack test images")
	}
}

// The hash of an image covers its size, its kind and every pixel.
func TestHashesOfPixels(t *testing.T) {
	seen := map[ContentHash]int{}
	box := image.Rect(0, 0, 2, 2)
	for i, img := range []image.Image{image.NewGray(box), image.NewRGBA(box), image.NewNRGBA(box),
		image.NewGray16(box), image.NewGray(image.Rect(0, 0, 4, 1)),
		image.NewGray16(image.Rect(0, 0, 1, 4)), func() image.Image {
			m := image.NewGray16(box)
			m.Set(1, 1, color.Gray16{1})
			return m
		}(),
		func() image.Image { m := image.NewRGBA64(box); m.Set(0, 1, color.RGBA64{1, 2, 3, 9}); return m }(),
		func() image.Image { m := image.NewRGBA64(box); m.Set(0, 1, color.RGBA64{1, 3, 2, 9}); return m }(),
		func() image.Image { m := image.NewRGBA(box); m.Pix[15] = 1; return m }(),
		func() image.Image { m := image.NewNRGBA(box); m.Pix[15] = 1; return m }()} {
		h, err := Example{Load: func() (image.Image, error) { return img, nil }}.hash()
		if other, there := seen[h]; err != nil || there {
			t.Errorf("images %d and %d have one hash, %v", other, i, err)
		}
		seen[h] = i
	}
	// Progress is reported every 512 images and at the end, of lists of at least so many.
	for n, want := range map[int]string{progressStep - 1: "[]", progressStep: "[512]",
		2*progressStep + 1: "[512 1024 1025]"} {
		calls := []int{}
		list := slices.Repeat([]Example{{Bytes: func() ([]byte, error) { return nil, nil }}}, n)
		if _, err := ContentHashes(context.Background(), list, 4, func(done, total int) {
			if calls = append(calls, done); total != n {
				t.Errorf("%d in all", total)
			}
		}); err != nil || fmt.Sprint(calls) != want {
			t.Errorf("%d images: %v, %v", n, calls, err)
		}
	}
	// A damaged file of the cache is reported, without a folder nothing is kept, and a file for a folder is an error.
	told := ""
	f := files(t, map[string]string{"a": "cat"})
	c := Cache{Dir: t.TempDir(),
		Damaged: func(path string, err error) { told = filepath.Base(path) + " " + err.Error() }}
	path := filepath.Join(c.Dir, "contents", Digest([]Example{f["a"]}))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(contentsMagic), 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.ContentHashes(context.Background(), []Example{f["a"]}, 1, nil); err != nil || len(got) != 1 ||
		told != filepath.Base(path)+" it does not match its checksum" {
		t.Error(got, err, told)
	}
	if got, err := (Cache{}).ContentHashes(context.Background(), []Example{f["a"]}, 1, nil); err != nil ||
		len(got) != 1 {
		t.Error(got, err)
	}
	// Hashes of pixels that code makes are those of one version of it.
	_, err := c.ContentHashes(context.Background(), made(2), 1, nil)
	path = filepath.Join(c.Dir, "contents", Digest(made(2))+fmt.Sprint("-", numerics.Version))
	if _, missing := os.Stat(path); err != nil || missing != nil {
		t.Error(err, missing)
	}
	_, err = Cache{Dir: f["a"].Path}.ContentHashes(context.Background(), []Example{f["a"]}, 1, nil)
	goldentest.WantError(t, err, "feature cache: ", "set runtime.cache to another folder")
	_, err = c.ContentHashes(context.Background(), made(1, 0), 1, nil)
	goldentest.WantError(t, err, "cannot read image made0")
}

func TestFreeBytes(t *testing.T) {
	if n, ok := FreeBytes(t.TempDir()); ok && n <= 0 {
		t.Error(n)
	}
}
