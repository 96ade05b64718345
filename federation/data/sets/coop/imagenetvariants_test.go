package coop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// synsets returns a classnames.txt of n classes: n00000000 has the name class 0 and so on, and classes 7 and 9 share a
// name, as in ImageNet's missile classes.
func synsets(n int) string {
	var b strings.Builder
	for i := range n {
		name := fmt.Sprint("class ", i)
		if i == 9 {
			name = "class 7"
		}
		fmt.Fprintf(&b, "n%08d %s\n", i, name)
	}
	return b.String()
}

// TestImageNetVariants: images and classnames.txt at the places of each release and of CoOp. Expected labels follow the
// order of classnames.txt for the folders that exist: 7 before 10 in ImageNetV2, whose folders are numbers.
func TestImageNetVariants(t *testing.T) {
	numbers, wnids := []string{"10", "0", "9", "7"}, []string{"n00000010", "n00000000", "n00000009", "n00000007"}
	for _, c := range []struct {
		set, images, names string
		folders            []string
	}{
		{"imagenetv2", "imagenetv2/imagenetv2-matched-frequency-format-val", "imagenetv2/", numbers},
		{"imagenetv2", "imagenetv2/test", "imagenet/", wnids},
		{"imagenet-sketch", "imagenet-sketch/images", "imagenet-sketch/", wnids},
		{"imagenet-sketch", "ImageNet_Sketch/sketch", "imagenet/", wnids},
		{"imagenet-a", "imagenet-adversarial/imagenet-a", "imagenet-adversarial/", wnids},
		{"imagenet-a", "imagenet-a", "imagenet/", wnids},
		{"imagenet-r", "imagenet-rendition/imagenet-r", "imagenet/", wnids},
		{"imagenet-r", "imagenet_r/test", "imagenet/", wnids},
	} {
		t.Run(c.set+" "+c.images, func(t *testing.T) {
			tree := series(c.images, 2, c.folders...)
			root := datatest.Write(t, datatest.Tree(t, append(tree, c.images+"/README.txt")...),
				map[string]string{c.names + "classnames.txt": synsets(1000)})
			s := mustOpen(t, source.Config{Set: c.set, Root: root})
			if want := []string{"class 0", "class 7", "class 7 9", "class 10"}; !slices.Equal(s.Classes, want) {
				t.Errorf("classes %q, want %q", s.Classes, want)
			}
			wantCounts(t, s, []int{0, 0, 0, 0}, []int{0, 0, 0, 0}, []int{2, 2, 2, 2})
			settest.WantNote(t, s, "found 4 classes; the release of "+c.set+" has "+map[bool]string{true: "200",
				false: "1000"}[c.set == "imagenet-a" || c.set == "imagenet-r"])
			for _, e := range s.Test {
				folder := filepath.Base(filepath.Dir(e.Path))
				want := slices.Index([]string{"", "7", "9", "10"}, strings.TrimLeft(folder, "n0")) // "" is 0
				if e.Label != want {
					t.Errorf("%s has label %d, want %d", e.ID, e.Label, want)
				}
			}
		})
	}
}

func TestImageNetVariantErrors(t *testing.T) {
	root := datatest.Tree(t, series("imagenet-rendition/imagenet-r", 1, "n00000002", "n99999999")...)
	names := filepath.Join(root, "imagenet-rendition", "classnames.txt")
	open := func() error {
		_, err := openSet(source.Config{Set: "imagenet-r", Root: root})
		return err
	}
	goldentest.WantError(t, open(), "no imagenet-r", names, "looked for")
	for what, text := range map[string]string{"999 lines": synsets(999), "1000 lines": "n99999998 last\n" +
		strings.Replace(synsets(1000), "n00000999 class 999\n", "", 1)} {
		filetest.Write(t, names, text)
		goldentest.WantError(t, open(), names, what, "order of their WNIDs")
	}
	filetest.Write(t, names, synsets(1000))
	goldentest.WantError(t, open(), "n99999999", names, "no line for it")
}
