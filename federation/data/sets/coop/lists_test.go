package coop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/goldentest"
)

// counts returns the numbers of examples of each class in train, val and test.
func counts(s *data.Set) [3][]int {
	return [3][]int{s.Counts(s.Train), s.Counts(s.Val), s.Counts(s.Test)}
}

func wantCounts(t *testing.T, s *data.Set, train, val, test []int) {
	t.Helper()
	if got := counts(s); !slices.Equal(got[0], train) || !slices.Equal(got[1], val) || !slices.Equal(got[2], test) {
		t.Errorf("counts %v, want %v %v %v", got, train, val, test)
	}
}

// TestClassFolders: without lists, classes are folders in CoOp's order (capitals first) with CoOp's names, and ten
// images of a class are split into five, two and three.
func TestClassFolders(t *testing.T) {
	for _, c := range []struct {
		set, dir string
		folders  []string
		classes  []string
	}{
		{"caltech101", "caltech-101/101_ObjectCategories", []string{"BACKGROUND_Google", "Faces", "Faces_easy",
			"Leopards", "Motorbikes", "accordion", "airplanes", "water_lilly"},
			[]string{"face", "leopard", "motorbike", "accordion", "airplane", "water lilly"}},
		{"caltech101", "Caltech101/caltech101/101_objectcategories", []string{"ant", "Faces"}, []string{"face", "ant"}},
		{"eurosat", "EuroSAT/2750", []string{"AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial",
			"Pasture", "PermanentCrop", "Residential", "River", "SeaLake"},
			[]string{"Annual Crop Land", "Forest", "Herbaceous Vegetation Land", "Highway or Road",
				"Industrial Buildings", "Pasture Land",
				"Permanent Crop Land", "Residential Buildings", "River", "Sea or Lake"}},
		{"ucf101", "ucf101/UCF-101-midframes", []string{"Apply_Eye_Makeup", "YoYo"}, []string{"Apply Eye Makeup",
			"Yo Yo"}},
		{"dtd", "DTD/dtd/images", []string{"polka-dotted", "banded"}, []string{"banded", "polka-dotted"}},
		{"food101", "food101/images", []string{"apple_pie", "waffles"}, []string{"apple pie", "waffles"}},
		{"cub200", "CUB-200-2011/images", []string{"001.Black_footed_Albatross", "010.Red_winged_Blackbird"},
			[]string{"Black footed Albatross", "Red winged Blackbird"}},
	} {
		t.Run(c.set, func(t *testing.T) {
			root := datatest.Tree(t, series(c.dir, 10, c.folders...)...)
			first := mustOpen(t, source.Config{Set: c.set, Root: root})
			if !slices.Equal(first.Classes, c.classes) || strings.Contains(fmt.Sprint(first.Notes), "renumbered") {
				t.Errorf("%q %q", first.Classes, first.Notes)
			}
			n := len(c.classes)
			wantCounts(t, first, slices.Repeat([]int{5}, n), slices.Repeat([]int{2}, n), slices.Repeat([]int{3}, n))
			settest.WantNote(t, first, "50/20/30")
			again := mustOpen(t, source.Config{Set: c.set, Root: filepath.Join(root,
				filepath.Dir(filepath.FromSlash(c.dir))),
				Seed: 5})
			if !slices.Equal(settest.IDs(first.Train), settest.IDs(again.Train)) {
				t.Errorf("the draw depends on more than the set:\n%v\n%v", settest.IDs(first.Train),
					settest.IDs(again.Train))
			}
			if _, err := openSet(source.Config{Set: c.set, Root: filepath.Join(root,
				filepath.FromSlash(c.dir))}); err != nil {
				t.Errorf("the folder of classes itself: %v", err)
			}
		})
	}
	trap := datatest.Tree(t, append(series("images", 3, "cat"), series("dtd/images", 3, "banded")...)...)
	if s := mustOpen(t, source.Config{Set: "dtd", Root: trap}); !slices.Equal(s.Classes, []string{"banded"}) {
		t.Errorf("the set's own folder goes before images/ beside it: %q", s.Classes)
	}
	root := datatest.Tree(t, "2750/Forest/1.jpg", "2750/River/")
	_, err := openSet(source.Config{Set: "eurosat", Root: root})
	goldentest.WantError(t, err, filepath.Join(root, "2750", "River"), "holds no images")
	_, err = openSet(source.Config{Set: "eurosat", Root: datatest.Tree(t, "2750/Forest/1.jpg", "2750/Forest/a.txt",
		"2750/River/2.jpg", "2750/River/b.txt")})
	goldentest.WantError(t, err, "a.txt", "b.txt")
}

// TestDrawSmall: shares of small classes, computed by hand from round-half-to-even and the rule that test gets one.
func TestDrawSmall(t *testing.T) {
	for n, want := range map[int][3]int{1: {1, 0, 0}, 2: {1, 0, 1}, 3: {2, 0, 1}, 4: {2, 1, 1}, 5: {2, 1, 2},
		7: {4, 1, 2}, 33: {16, 7, 10}} {
		l := &source.Listing{Names: map[int]string{0: "x"}}
		for i := range n {
			l.Items = append(l.Items, source.Item{Path: fmt.Sprint(i)})
		}
		l.DrawSplit()
		got := map[string]int{}
		for _, it := range l.Items {
			got[it.Split]++
		}
		if got["train"] != want[0] || got["val"] != want[1] || got["test"] != want[2] {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
}

func TestPetLists(t *testing.T) {
	var trainval, test, files []string
	for i, breed := range []string{"Abyssinian", "american_bulldog"} {
		for k := 1; k <= 13; k++ {
			line := fmt.Sprintf("%s_%d %d %d 1", breed, k, i+1, i+1)
			if k <= 10 {
				trainval = append(trainval, line)
			} else {
				test = append(test, line)
			}
			files = append(files, fmt.Sprintf("oxford-iiit-pet/images/%s_%d.jpg", breed, k))
		}
	}
	root := datatest.Write(t, datatest.Tree(t, files...),
		map[string]string{"oxford-iiit-pet/annotations/trainval.txt": strings.Join(trainval, "\n"),
			"oxford-iiit-pet/annotations/test.txt": "#Image CLASS-ID SPECIES BREED ID\r\n" + strings.Join(test,
				"\r\n")})
	s := mustOpen(t, source.Config{Set: "oxfordpets", Root: root})
	if !slices.Equal(s.Classes, []string{"abyssinian", "american bulldog"}) {
		t.Errorf("%q", s.Classes)
	}
	wantCounts(t, s, []int{8, 8}, []int{2, 2}, []int{3, 3})
	settest.WantNote(t, s, "20 %")
	datatest.Write(t, root, map[string]string{"oxford-iiit-pet/annotations/test.txt": "Abyssinian_1 x"})
	_, err := openSet(source.Config{Set: "oxfordpets", Root: root})
	goldentest.WantError(t, err, "test.txt: line 1", "Abyssinian_100")
}

func TestFoodLists(t *testing.T) {
	for name, meta := range map[string]map[string]string{
		"text": {"meta/train.txt": "waffles/1\nwaffles/2\napple_pie/1\n", "meta/test.txt": "apple_pie/2\nwaffles/3\n"},
		"json": {"meta/train.json": `{"waffles": ["waffles/1", "waffles/2"], "apple_pie": ["apple_pie/1"]}`,
			"meta/test.json": `{"waffles": ["waffles/3"], "apple_pie": ["apple_pie/2"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, source.Config{Set: "food101", Root: datatest.Write(t, datatest.Tree(t, series("images", 3,
				"apple_pie",
				"waffles")...), meta)})
			if !slices.Equal(s.Classes, []string{"apple pie", "waffles"}) {
				t.Errorf("%q", s.Classes)
			}
			wantCounts(t, s, []int{1, 2}, []int{0, 0}, []int{1, 1})
			settest.WantNote(t, s, "not comparable")
		})
	}
}

func TestTextureLists(t *testing.T) {
	root := datatest.Write(t, datatest.Tree(t, series("dtd/images", 3, "banded", "polka-dotted")...), map[string]string{
		"dtd/labels/train1.txt": "polka-dotted/1.jpg\nbanded/1.jpg", "dtd/labels/val1.txt": "banded/2.jpg",
		"dtd/labels/test1.txt": "banded/3.jpg\npolka-dotted/3.jpg\npolka-dotted/2.jpg"})
	s := mustOpen(t, source.Config{Set: "dtd", Root: root})
	wantCounts(t, s, []int{1, 1}, []int{1, 0}, []int{1, 2})
	if !slices.Equal(settest.IDs(s.Train), []string{"images/polka-dotted/1.jpg=1.0", "images/banded/1.jpg=0.0"}) {
		t.Error(settest.IDs(s.Train))
	}
}

func TestActionLists(t *testing.T) {
	var train []string
	files := []string{"UCF-101-midframes/Yo_Yo/v_YoYo_g01_c01.jpg",
		"UCF-101-midframes/Apply_Eye_Makeup/v_A_g01_c01.jpg"}
	for k := range 5 {
		train = append(train, fmt.Sprintf("YoYo/v_YoYo_g08_c0%d.avi 2", k),
			fmt.Sprintf("ApplyEyeMakeup/v_A_g08_c0%d.avi 1", k))
		files = append(files, fmt.Sprintf("UCF-101-midframes/Yo_Yo/v_YoYo_g08_c0%d.jpg", k),
			fmt.Sprintf("UCF-101-midframes/Apply_Eye_Makeup/v_A_g08_c0%d.jpg", k))
	}
	root := datatest.Write(t, datatest.Tree(t, files...),
		map[string]string{"ucfTrainTestlist/classInd.txt": "1 ApplyEyeMakeup\n2 YoYo\n",
			"ucfTrainTestlist/trainlist01.txt": strings.Join(train, "\n"),
			"ucfTrainTestlist/testlist01.txt":  "YoYo/v_YoYo_g01_c01.avi\nApplyEyeMakeup/v_A_g01_c01.avi"})
	s := mustOpen(t, source.Config{Set: "ucf101", Root: root})
	if !slices.Equal(s.Classes, []string{"Apply Eye Makeup", "Yo Yo"}) {
		t.Errorf("%q", s.Classes)
	}
	wantCounts(t, s, []int{4, 4}, []int{1, 1}, []int{1, 1})
}

func TestSceneLists(t *testing.T) {
	files := append(series("SUN397/a", 7, "abbey"), series("SUN397/a/apse", 7, "indoor")...)
	var train string
	for k := 1; k <= 5; k++ {
		train += fmt.Sprintf("/a/abbey/%d.jpg\n/a/apse/indoor/%d.jpg\n", k, k)
	}
	root := datatest.Write(t, datatest.Tree(t, files...),
		map[string]string{"ClassName.txt": "/a/abbey\n/a/apse/indoor\n",
			"Training_01.txt": train,
			"Testing_01.txt":  "/a/abbey/6.jpg\n/a/apse/indoor/6.jpg\n/a/abbey/7.jpg"})
	s := mustOpen(t, source.Config{Set: "sun397", Root: root})
	if !slices.Equal(s.Classes, []string{"abbey", "indoor apse"}) {
		t.Errorf("%q", s.Classes)
	}
	wantCounts(t, s, []int{4, 4}, []int{1, 1}, []int{2, 1})
}

func TestAircraftLists(t *testing.T) {
	files := map[string]string{"variants.txt": "A300B4\nBAE 146-200\n",
		"images_variant_train.txt": "1 BAE 146-200\n2 A300B4\n",
		"images_variant_val.txt":   "3 A300B4\n", "images_variant_test.txt": "4 A300B4\n5 BAE 146-200\n"}
	for _, dir := range []string{".", "fgvc_aircraft", "fgvc-aircraft-2013b/data"} {
		root := datatest.Tree(t, under(dir, "images/1.jpg", "images/2.jpg", "images/3.jpg", "images/4.jpg",
			"images/5.jpg")...)
		datatest.Write(t, filepath.Join(root, dir), files)
		s := mustOpen(t, source.Config{Set: "fgvcaircraft", Root: root})
		if !slices.Equal(s.Classes, []string{"A300B4", "BAE 146-200"}) || s.Template != "a photo of a {}, a type of "+
			"aircraft." || s.Train[0].Label != 1 {
			t.Errorf("%s: %q", dir, s.Classes)
		}
		wantCounts(t, s, []int{1, 1}, []int{1, 0}, []int{1, 1})
	}
}

func TestImageNet(t *testing.T) {
	names := "n01 tench\nn02 missile\nn03 missile\nn04 great white shark\n"
	for _, dir := range []string{"imagenet/images/", "images/", ""} {
		files := append(series(dir+"train", 3, "n02", "n01", "n03"), series(dir+"val", 1, "n01", "n02")...)
		root := datatest.Write(t, datatest.Tree(t, files...), map[string]string{strings.TrimSuffix(dir, "images/") +
			"classnames.txt": names})
		s := mustOpen(t, source.Config{Set: "imagenet", Root: root})
		if !slices.Equal(s.Classes, []string{"tench", "missile", "missile 2"}) {
			t.Errorf("%q", s.Classes)
		}
		wantCounts(t, s, []int{3, 3, 3}, []int{0, 0, 0}, []int{1, 1, 0})
		settest.WantNote(t, s, "missile 2")
	}
	root := datatest.Write(t, datatest.Tree(t, "images/train/n09/1.jpg", "images/val/n09/1.jpg"),
		map[string]string{"classnames.txt": names})
	_, err := openSet(source.Config{Set: "imagenet", Root: root})
	goldentest.WantError(t, err, "n09", "classnames.txt")
	datatest.Write(t, root, map[string]string{"classnames.txt": "n09 cock\nn09 hen\n"})
	_, err = openSet(source.Config{Set: "imagenet", Root: root})
	goldentest.WantError(t, err, "classnames.txt: line 2", "once")
	datatest.Write(t, root, map[string]string{"classnames.txt": "n09 cock, rooster\n"})
	goldentest.NoError(t, os.Rename(filepath.Join(root, "classnames.txt"), filepath.Join(root,
		"LOC_synset_mapping.txt")))
	if s := mustOpen(t, source.Config{Set: "imagenet", Root: root}); !slices.Equal(s.Classes, []string{"cock"}) {
		t.Errorf("%q", s.Classes)
	}
}
