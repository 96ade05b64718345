package coop

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
)

const tinyNames = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n" +
	"n01629819\tEuropean fire salamander, Salamandra salamandra\n"

var tinyTrees = map[string][]string{
	"published": {"train/n02124075/images/b.png", "train/n01443537/images/a.png",
		"train/n01443537/n01443537_boxes.txt", "val/images/val_0.png", "val/images/val_1.png",
		"test/images/test_0.png"},
	"rearranged": {"train/n02124075/images/b.png", "train/n01443537/images/a.png", "val/n02124075/images/val_0.png",
		"val/n01443537/images/val_1.png", "val/images/"},
	"flat": {"train/n02124075/b.png", "train/n01443537/a.png", "val/n02124075/val_0.png",
		"val/n01443537/val_1.png"},
}

func TestTinyImageNet(t *testing.T) {
	for name, files := range tinyTrees {
		for _, top := range []string{"", "tiny-imagenet-200/"} {
			tree := convert.Slice(files, func(f string) string { return top + f })
			root := datatest.Tree(t, tree...)
			texts := map[string]string{top + "wnids.txt": "n02124075\nn01443537\n", top + "words.txt": tinyNames}
			if name != "flat" {
				texts[top+"val/val_annotations.txt"] = "val_0.png\tn02124075\t0\t32\t44\t62\n" +
					"val_1.png\tn01443537\t52\t55\t57\t59\n"
			}
			s := mustOpen(t, source.Config{Set: "tinyimagenet", Root: datatest.Write(t, root, texts)})
			if !slices.Equal(s.Classes, []string{"goldfish", "Egyptian cat"}) || len(s.Notes) != 1 ||
				!strings.Contains(s.Notes[0], "200") {
				t.Errorf("%s: %q %q", name, s.Classes, s.Notes)
			}
			if len(s.Train) != 2 || s.Train[0].Label != 0 || !strings.HasSuffix(s.Train[0].ID, "a.png") ||
				len(s.Test) != 2 || len(s.Val) != 0 {
				t.Errorf("%s: %v %v", name, settest.IDs(s.Train), settest.IDs(s.Test))
			}
			for _, e := range s.Test {
				if want := map[bool]int{true: 1, false: 0}[strings.HasSuffix(e.ID, "val_0.png")]; e.Label != want ||
					e.Stamp == "" {
					t.Errorf("%s: %+v", name, e)
				}
			}
		}
	}
	s := mustOpen(t, source.Config{Set: "tinyimagenet", Root: datatest.Tree(t, tinyTrees["flat"]...)})
	if !slices.Equal(s.Classes, []string{"n01443537", "n02124075"}) {
		t.Errorf("without names: %q", s.Classes)
	}
	settest.WantNote(t, s, "2 of 2 classes have no name in words.txt")
	_, err := openSet(source.Config{Set: "tinyimagenet", Root: datatest.Tree(t, append(tinyTrees["flat"],
		"val/n7/val_2.png")...)})
	goldentest.WantError(t, err, `there is no class "n7" among the training folders`)
}

func TestTinyImageNetErrors(t *testing.T) {
	for name, c := range map[string]struct {
		texts map[string]string
		words []string
	}{
		"annotation": {map[string]string{"val/val_annotations.txt": "val_0.png n9 0 0 1 1\n"},
			[]string{"val_annotations.txt: line 1", `"n9"`}},
		"short": {map[string]string{"val/val_annotations.txt": "\nval_0.png\n"}, []string{"line 2", "WNID"}},
		"outside": {map[string]string{"val/val_annotations.txt": "../a.png n02124075\n"}, []string{"line 1",
			"not a file name"}},
		"not there": {map[string]string{"val/val_annotations.txt": "x.png n02124075\n"}, []string{"x.png",
			"is missing"}},
		"wnids": {map[string]string{"val/val_annotations.txt": "val_0.png n02124075\n",
			"wnids.txt": "n02124075\nn7\n"}, []string{"wnids.txt: line 2", "train/n7"}},
		"words": {map[string]string{"val/val_annotations.txt": "val_0.png n02124075\n",
			"words.txt": "n02124075 cat\n"}, []string{"words.txt: line 1", "tab"}},
		"no val": {nil, []string{"no tinyimagenet", "val"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := tinyTrees["published"]
			if name == "no val" {
				tree = tree[:3]
			}
			_, err := openSet(source.Config{Set: "tinyimagenet", Root: datatest.Write(t, datatest.Tree(t, tree...),
				c.texts)})
			goldentest.WantError(t, err, c.words...)
		})
	}
}

func FuzzTinyAnnotation(f *testing.F) {
	f.Add("val_0.JPEG\tn01443537\t0\t32\t44\t62")
	f.Add("a/b n01443537")
	f.Fuzz(func(t *testing.T, line string) {
		l := &source.Listing{}
		goldentest.NoError(t, l.Name("x", 0, "goldfish"))
		err := annotation(l, map[string]int{"n01443537": 0}, "val/images", "line 1", line)
		if err == nil && (len(l.Items) != 1 || !strings.HasPrefix(l.Items[0].Path, "val/images/")) {
			t.Fatalf("%+v", l.Items)
		}
	})
}
