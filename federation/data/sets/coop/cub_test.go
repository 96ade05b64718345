package coop

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/goldentest"
)

// birds returns the lists of CUB-200-2011 with two classes; image 2 is a test image.
func birds() map[string]string {
	return map[string]string{
		"images.txt": "1 001.Black_footed_Albatross/a_1.jpg\n2 001.Black_footed_Albatross/a_2.jpg\n3 " +
			"002.Laysan_Albatross/b_1.jpg\n4 002.Laysan_Albatross/b_2.jpg\n",
		"image_class_labels.txt": "1 1\n2 1\n3 2\n4 2\n", "train_test_split.txt": "1 1\n2 0\n3 1\n4 1\n",
		"classes.txt": "1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n",
	}
}

var birdFiles = []string{"images/001.Black_footed_Albatross/a_1.jpg", "images/001.Black_footed_Albatross/a_2.jpg",
	"images/002.Laysan_Albatross/b_1.jpg", "images/002.Laysan_Albatross/b_2.jpg"}

func TestBirdLists(t *testing.T) {
	for _, dir := range []string{".", "CUB_200_2011", "cub-200-2011", "cub/CUB_200_2011"} {
		for _, named := range []bool{true, false} {
			files := birds()
			if !named {
				delete(files, "classes.txt")
			}
			root := datatest.Tree(t, under(dir, birdFiles...)...)
			datatest.Write(t, filepath.Join(root, dir), files)
			s := mustOpen(t, source.Config{Set: "cub200", Root: root})
			if !slices.Equal(s.Classes, []string{"Black footed Albatross", "Laysan Albatross"}) {
				t.Errorf("%q", s.Classes)
			}
			wantCounts(t, s, []int{1, 2}, []int{0, 0}, []int{1, 0})
			if got := settest.IDs(s.Test); !slices.Equal(got,
				[]string{"images/001.Black_footed_Albatross/a_2.jpg=0.0"}) {
				t.Errorf("%v", got)
			}
		}
	}
}

func TestBirdListErrors(t *testing.T) {
	root := datatest.Tree(t, birdFiles...)
	for _, c := range []struct {
		file, text string
		words      []string
	}{
		{"images.txt", "1 ../x.jpg", []string{"images.txt: line 1", "leaves"}},
		{"images.txt", "one x.jpg", []string{"images.txt: line 1", "expected a number"}},
		{"images.txt", "1", []string{"images.txt: line 1"}},
		{"images.txt", "1 a/x.jpg\n\n1 a/y.jpg", []string{"images.txt: line 3", "twice"}},
		{"images.txt", "9 a/x.jpg", []string{"line 1", "image 9", "image_class_labels.txt"}},
		{"images.txt", "", []string{"images.txt", "no images"}},
		{"image_class_labels.txt", "1 x", []string{"image_class_labels.txt: line 1", "whole number"}},
		{"image_class_labels.txt", "1 7\n2 1\n3 2\n4 2\n", []string{"label 7", "classes.txt"}},
		{"train_test_split.txt", "1 2\n2 0\n3 1\n4 1\n", []string{"image 1", "train_test_split.txt"}},
		{"classes.txt", "1 001.A\n2 002.A\n", []string{`"A"`, "labels 0 and 1"}},
	} {
		files := birds()
		files[c.file] = c.text
		datatest.Write(t, root, files)
		_, err := openSet(source.Config{Set: "cub200", Root: root})
		goldentest.WantError(t, err, c.words...)
	}
	_, err := openSet(source.Config{Set: "cub200", Root: datatest.Write(t, datatest.Tree(t, birdFiles[0]), birds())})
	goldentest.WantError(t, err, "3 of the 4", "a_2.jpg")
}

func FuzzBirdLists(f *testing.F) {
	b := birds()
	f.Add(b["images.txt"], b["image_class_labels.txt"], b["train_test_split.txt"], b["classes.txt"])
	f.Add("1 a.jpg", "1 1", "1 0", "")
	f.Add("1 a/b", "1 0", "1 1", "0 x")
	f.Fuzz(func(t *testing.T, images, labels, split, classes string) {
		files := map[string]string{"images.txt": images, "image_class_labels.txt": labels,
			"train_test_split.txt": split}
		if classes != "" {
			files["classes.txt"] = classes
		}
		root := datatest.Write(t, t.TempDir(), files)
		paths := []string{filepath.Join(root, "images")}
		for _, name := range []string{"images.txt", "image_class_labels.txt", "train_test_split.txt"} {
			paths = append(paths, filepath.Join(root, name))
		}
		paths = append(paths, map[bool]string{true: filepath.Join(root, "classes.txt")}[classes != ""])
		l, err := birdLists(source.Config{}, paths)
		if err != nil {
			return
		}
		for _, it := range l.Items {
			if !filepath.IsLocal(it.Path) || l.Names[it.Label] == "" || it.Split != "train" && it.Split != "test" {
				t.Fatalf("%+v", it)
			}
		}
		if _, err := l.Set(source.Config{Corrupt: data.Skip}); err == nil {
			t.Fatal("a set without image files")
		}
	})
}

// TestFlowerLists: the .mat files hold 21 labels, 1 for the first ten and 2 for the others, and a split
// (tools/golden/flowers.py).
func TestFlowerLists(t *testing.T) {
	var files []string
	for i := range 21 {
		files = append(files, fmt.Sprintf("oxford_flowers/jpg/image_%05d.jpg", i+1))
	}
	names := map[string]string{"cat_to_name.json": `{"2": "pink primrose", "1": "hard-leaved pocket orchid", "3": "x"}`}
	for _, c := range []struct {
		name             string
		mats             []string
		texts            map[string]string
		classes          []string
		train, val, test []int
	}{
		{"CoOp's files", []string{"imagelabels.mat"}, names, []string{"hard-leaved pocket orchid", "pink primrose"},
			[]int{5, 6}, []int{2, 2}, []int{3, 3}},
		{"with setid", []string{"imagelabels.mat", "setid.mat"}, names, []string{"hard-leaved pocket orchid",
			"pink primrose"}, []int{2, 2}, []int{1, 1}, []int{7, 8}},
		{"without names", []string{"imagelabels.mat"}, nil, []string{"pink primrose", "hard-leaved pocket orchid"},
			[]int{5, 6}, []int{2, 2}, []int{3, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := datatest.Tree(t, files...)
			texts := maps.Clone(c.texts)
			if texts == nil {
				texts = map[string]string{}
			}
			for _, m := range c.mats {
				texts[m] = datatest.ReadTestdata(t, "flowers_"+m)
			}
			datatest.Write(t, filepath.Join(root, "oxford_flowers"), texts)
			s := mustOpen(t, source.Config{Set: "flowers102", Root: root})
			if !slices.Equal(s.Classes, c.classes) {
				t.Errorf("%q", s.Classes)
			}
			wantCounts(t, s, c.train, c.val, c.test)
		})
	}
	root := datatest.Write(t, datatest.Tree(t, files...), map[string]string{"oxford_flowers/imagelabels.mat": "text"})
	_, err := openSet(source.Config{Set: "flowers102", Root: root})
	goldentest.WantError(t, err, "imagelabels.mat")
	datatest.Write(t, root, map[string]string{"oxford_flowers/imagelabels.mat": datatest.ReadTestdata(t,
		"flowers_imagelabels.mat"),
		"oxford_flowers/cat_to_name.json": `{"1": "x"}`})
	_, err = openSet(source.Config{Set: "flowers102", Root: root})
	goldentest.WantError(t, err, "cat_to_name.json", "label 2")
	// MATLAB 5 files by hand of too few and too many labels for a split of 21 images. All are 1, as uint8.
	for size, says := range map[byte]string{16: "tstid: image 17 is not one of the 16",
		24: "image 22 is in none of its lists"} {
		labels := slices.Concat(bytes.Repeat([]byte{' '}, 124), []byte{0, 1, 'I', 'M', 14, 0, 0, 0, 56 + size, 0, 0, 0,
			6, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, // flags
			5, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, size, 0, 0, 0, // dimensions 1 x size
			1, 0, 0, 0, 6, 0, 0, 0, 'l', 'a', 'b', 'e', 'l', 's', 0, 0, 2, 0, 0, 0, size, 0, 0, 0},
			bytes.Repeat([]byte{1}, int(size)))
		datatest.Write(t, root, map[string]string{"oxford_flowers/imagelabels.mat": string(labels),
			"oxford_flowers/setid.mat": datatest.ReadTestdata(t, "flowers_setid.mat")})
		_, err = openSet(source.Config{Set: "flowers102", Root: root})
		goldentest.WantError(t, err, "setid.mat: "+says)
	}
}
