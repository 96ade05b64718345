package features_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/tiny"
	"promptfed/runtime/filetest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// bundled opens one of the bundled backbones, whose products are large enough to be split among threads.
func bundled(t *testing.T, name string) *bundle.Bundle {
	t.Helper()
	files, err := tiny.FS(name)
	dir := t.TempDir()
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "source"), files)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := converted.Convert(filepath.Join(dir, "source"), filepath.Join(dir, name), converted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func photos(t *testing.T, n int) []data.Example {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i := range n {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%03d.jpg", i)))
		datatest.Photo(t, paths[i], i%3, i)
	}
	return files(t, paths...)
}

// TestDependOnTheImageAlone: an image has the same features, bit for bit, with any number of workers, with any settings
// of threads, weights and buffers, and at any position in any list, also alone. Settings that do change bits have
// another key.
func TestDependOnTheImageAlone(t *testing.T) {
	list := photos(t, 29)
	for _, name := range []string{"tiny-vit-b32", "tiny-rn50"} {
		b := bundled(t, name)
		build := func(x features.Extractor, list []data.Example) *tensor.Tensor {
			x.Cache = data.Cache{Dir: t.TempDir(), Precision: data.Float}
			return extract(t, x, b, list, 1)[0]
		}
		want := build(features.Extractor{Workers: 1}, list)
		same := func(what string, got *tensor.Tensor, at ...int) {
			t.Helper()
			for k, i := range at {
				if !slices.Equal(got.Row(k).Data, want.Row(i).Data) {
					t.Errorf("%s, %s: image %d has other features", name, what, i)
					return
				}
			}
		}
		for _, x := range []features.Extractor{{Workers: 2}, {Workers: 5},
			{Workers: 2, Session: ort.Options{IntraThreads: 3, Spinning: true, Runs: 4}},
			{Workers: 1, Session: ort.Options{Prepack: true, NoArena: true}}} {
			same(fmt.Sprintf("%d workers, %+v", x.Workers, x.Session), build(x, list), tensor.Indices(29)...)
		}
		for _, at := range [][]int{{28}, {11, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 9}, {27, 26, 25, 24, 23, 22, 21, 20, 19, 18,
			17, 16, 15, 14, 13, 12, 11}} {
			x := features.Extractor{Workers: 2}
			same(fmt.Sprint("the list ", at), build(x, data.Pick(list, at)), at...)
			exact := compute(t, x, features.Request{Bundle: b, List: data.Pick(list, at), What: method.ImageInput})
			same(fmt.Sprint("without a cache, the list ", at), exact, at...)
		}
		dir, computed := t.TempDir(), 0
		x := features.Extractor{Cache: data.Cache{Dir: dir}, Workers: 2,
			Progress: func(string, int, int) { computed++ }}
		extract(t, x, b, list, 1)
		x.Session.OptLevel = ort.OptBasic // convolutions lose their blocked layout
		computed = 0
		if extract(t, x, b, list, 1); computed != len(list) {
			t.Errorf("%s: of %d images %d were computed with another graph optimization", name, len(list), computed)
		}
	}
}

// TestContentIsTheKey: if a file is replaced by one with the same size, name and time, the features are those of its
// new content; files that were moved, or have another time, are not computed again.
func TestContentIsTheKey(t *testing.T) {
	b, dir := small(t), t.TempDir()
	path := filepath.Join(dir, "a.bmp")
	stamp := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	write := func(path string, shade byte) []data.Example {
		t.Helper()
		made := filetest.Write(t, path+".new", bitmap(shade))
		if err := errors.Join(os.Chtimes(made, stamp, stamp), os.Rename(made, path)); err != nil {
			t.Fatal(err)
		}
		list := files(t, path)
		list[0].ID = filepath.Base(path) // as in sets: relative to their root
		return list
	}
	computed := 0
	x := features.Extractor{Cache: data.Cache{Dir: t.TempDir()}, Workers: 1,
		Progress: func(string, int, int) { computed++ }}
	dark := extract(t, x, b, write(path, 20), 1)[0]
	light := extract(t, x, b, write(path, 220), 1)[0]
	if slices.Equal(dark.Data, light.Data) || computed != 2 {
		t.Errorf("a replaced file has the features of the old one: %d images were computed", computed)
	}
	stamp = stamp.Add(time.Hour)
	moved := filepath.Join(t.TempDir(), "b.bmp")
	if again := extract(t, x, b, write(moved, 20), 1)[0]; !slices.Equal(again.Data, dark.Data) || computed != 2 {
		t.Errorf("a moved file was computed again: %d images", computed)
	}
}

// bitmap returns a BMP of 16x16 pixels, always of the same size, darker on the left.
func bitmap(shade byte) []byte {
	const size = 16
	head := []byte{'B', 'M', 54 + 0, 3, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, size, 0, 0, 0, size, 0, 0, 0, 1, 0,
		24, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	out := head
	for i := range size * size {
		out = append(out, shade/2, byte(i%size), shade)
	}
	return out
}
