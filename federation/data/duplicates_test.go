package data

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// files writes contents under names and lists them, with label 0.
func files(t *testing.T, contents map[string]string) map[string]Example {
	dir := t.TempDir()
	out := map[string]Example{}
	for name, text := range contents {
		path := filetest.Write(t, filepath.Join(dir, name), text)
		out[name] = Example{ID: name, Path: path, Stamp: fmt.Sprint(len(text))}
	}
	return out
}

// Files are compared by all their bytes, and not only by size or by their first bytes.
func TestContents(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 10000))
	f := files(t, map[string]string{"a": "cat", "b": "cat", "c": "dog", "d": "horse", "e": long + "1", "f": long + "2",
		"g": long + "1"})
	gray := func(v uint8) Example {
		return Example{ID: fmt.Sprint("gray", v), Load: func() (image.Image, error) {
			m := image.NewGray(image.Rect(0, 0, 2, 2))
			m.Pix[3] = v / 2
			return m, nil
		}}
	}
	list := []Example{f["a"], f["b"], f["c"], f["d"], f["e"], f["f"], f["g"], gray(4), gray(5), gray(6),
		{ID: "bytes", Bytes: func() ([]byte, error) { return []byte("cat"), nil }}}
	got, err := ContentHashes(context.Background(), list, 3, nil)
	goldentest.NoError(t, err)
	equal := func(i, j int) bool { return got[i] == got[j] && got[i] != (ContentHash{}) }
	for i := range list {
		for j := range i {
			want := slices.Contains([][2]int{{1, 0}, {6, 4}, {8, 7}, {10, 0}, {10, 1}}, [2]int{i, j})
			if equal(i, j) != want {
				t.Errorf("%s and %s equal: %v", list[i].ID, list[j].ID, !want)
			}
		}
	}
	if want := ContentHash(sha256.Sum256([]byte("dog"))); got[2] != want {
		t.Errorf("the content of a file is %x, its SHA-256 %x", got[2], want)
	}
	gone := []Example{{ID: "gone", Path: filepath.Join(t.TempDir(), "gone.png")}}
	_, err = ContentHashes(context.Background(), gone, 1, nil)
	var bad *BadImage
	if !errors.As(err, &bad) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// The cache returns stored hashes only for an unchanged list; damaged hashes are computed again.
func TestContentsCache(t *testing.T) {
	f := files(t, map[string]string{"a": "cat", "b": "cat"})
	c := Cache{Dir: t.TempDir()}
	read := func(list ...Example) []ContentHash {
		out, err := c.ContentHashes(context.Background(), list, 1, nil)
		goldentest.NoError(t, err)
		return out
	}
	first := read(f["a"], f["b"])
	filetest.Write(t, f["b"].Path, "dog") // the stamp in the list is unchanged
	if got := read(f["a"], f["b"]); !slices.Equal(got, first) || got[0] != got[1] || got[0] == (ContentHash{}) {
		t.Error("the cache did not answer")
	}
	changed := f["b"]
	changed.Stamp += " later"
	if got := read(f["a"], changed); got[0] == got[1] {
		t.Error("the cache answered for another list")
	}
	path := filepath.Join(c.Dir, "contents", Digest([]Example{f["a"], f["b"]}))
	b := filetest.Read(t, path)
	b[20] ^= 1
	filetest.Write(t, path, b)
	if got := read(f["a"], f["b"]); got[0] == got[1] {
		t.Error("a damaged answer was taken")
	}
}

// duplicated returns a set in which train image 1 is test image 0, train 2 is val 0, val 1 is test 1, train 4 is train
// 3 with another label, and no other images are equal.
func duplicated() (*Set, []ContentHash) {
	list := func(split string, labels ...int) (out []Example) {
		for i, y := range labels {
			out = append(out, Example{ID: fmt.Sprint(split, i), Label: y})
		}
		return out
	}
	s := &Set{Classes: []string{"a", "b"}, Train: list("train", 0, 0, 1, 1, 0), Val: list("val", 1, 0),
		Test: list("test", 0, 0, 1)}
	n := []byte{0, 1, 2, 3, 3, 2, 4, 1, 4, 0}
	out := make([]ContentHash, len(n))
	for i, v := range n {
		out[i][0] = v
	}
	return s, out
}

func names(list []Example) []string {
	return convert.Slice(list, func(e Example) string { return e.ID })
}

func TestDuplicates(t *testing.T) {
	want := Duplicates{TrainTest: 1, TrainVal: 1, ValTest: 1, Repeated: 1, Labels: 1, Example: "train1 and test0"}
	s, c := duplicated()
	if d, err := s.FindDuplicates(c, DuplicatesKeep); err != nil || d != want || len(s.Train) != 5 ||
		s.Test[2].ContentHash != c[9] {
		t.Errorf("keep: %+v, %v", d, err)
	}
	want.Dropped = 3
	s, c = duplicated()
	_, err := s.FindDuplicates(c, DuplicatesError)
	goldentest.WantError(t, err, "1 training image", "train1 and test0", "data.duplicates")
	d, err := s.FindDuplicates(c, DuplicatesDrop)
	if err != nil || d != want {
		t.Errorf("drop: %+v, %v", d, err)
	}
	if got := names(slices.Concat(s.Train, s.Val, s.Test)); !slices.Equal(got, []string{"train0", "train3", "train4",
		"val0", "test0", "test1", "test2"}) || s.Train[1].ContentHash != c[3] {
		t.Errorf("drop kept %v", got)
	}
	s, c = duplicated()
	s.Val, s.Test = nil, nil // training images may repeat
	if d, err := s.FindDuplicates(c[:5], DuplicatesError); err != nil || d.Repeated != 1 {
		t.Errorf("a repeated training image: %+v, %v", d, err)
	}
	s, c = duplicated()
	s.MergeSplits(true)
	_, err = s.FindDuplicates(c, DuplicatesError)
	goldentest.WantError(t, err, "4 images repeat", "data.duplicates")
	want = Duplicates{Repeated: 4, Labels: 1, Dropped: 4, Example: "train3 and train4"}
	if d, err := s.FindDuplicates(c, DuplicatesDrop); err != nil || d != want || !slices.Equal(names(s.Pool),
		[]string{"train0", "train1", "train2", "train3", "val1", "test2"}) {
		t.Errorf("pool: %+v, %v, %v", d, names(s.Pool), err)
	}
	s, c = duplicated()
	s.Train, c = s.Train[1:3], append(c[1:3:3], c[5:]...) // the only image of each class is also in another split
	s.Train[0].Label, s.Train[1].Label, s.Classes = 1, 1, []string{"never had images", "b"}
	_, err = s.FindDuplicates(c, DuplicatesDrop)
	goldentest.WantError(t, err, `leaves class "b" without training images: all 2`)
}
