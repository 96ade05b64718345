package coop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
)

// series returns the names CLASS/1.jpg ... CLASS/n.jpg under dir.
func series(dir string, n int, classes ...string) []string {
	var out []string
	for _, c := range classes {
		for i := range n {
			out = append(out, fmt.Sprintf("%s/%s/%d.jpg", dir, c, i+1))
		}
	}
	return out
}

// pets is a split file of two classes; its labels are not in the order of names, and its images not in the order of
// labels.
const pets = `{"train": [["Bombay_2.jpg", 1, "abyssinian"], ["Bengal_1.jpg", 0, "american_bulldog"],
  ["Bombay_1.jpg", 1, "abyssinian"]],
 "val": [["Bengal_2.jpg", 0, "american_bulldog"]],
 "test": [["Bombay_3.jpg", 1, "abyssinian"], ["Bengal_3.jpg", 0, "american_bulldog"]]}`

var petFiles = []string{"images/Bombay_1.jpg", "images/Bombay_2.jpg", "images/Bombay_3.jpg", "images/Bengal_1.jpg",
	"images/Bengal_2.jpg", "images/Bengal_3.jpg"}

func under(dir string, names ...string) []string {
	return convert.Slice(names, func(n string) string { return dir + "/" + n })
}

// TestSplitFile: data.root may be $DATA, the set's folder, or a folder with the release's own names, with the same
// result.
func TestSplitFile(t *testing.T) {
	for name, dir := range map[string]string{"the set's folder": ".", "$DATA": "oxford_pets",
		"another name": "Oxford-IIIT-Pet", "twice": "pets/oxford_pets"} {
		t.Run(name, func(t *testing.T) {
			root := datatest.Tree(t, under(dir, petFiles...)...)
			datatest.Write(t, root, map[string]string{dir + "/split_zhou_OxfordPets.json": "\xef\xbb\xbf" + pets})
			s := mustOpen(t, source.Config{Set: "oxfordpets", Root: root})
			if !slices.Equal(s.Classes, []string{"american bulldog", "abyssinian"}) ||
				s.Template != "a photo of a {}, a type of pet." {
				t.Errorf("%q, %q", s.Classes, s.Template)
			}
			if got := settest.IDs(s.Train); !slices.Equal(got, []string{"images/Bombay_2.jpg=1.0",
				"images/Bengal_1.jpg=0.0", "images/Bombay_1.jpg=1.0"}) {
				t.Errorf("train %v", got)
			}
			if got := settest.IDs(s.Val); !slices.Equal(got, []string{"images/Bengal_2.jpg=0.0"}) {
				t.Errorf("val %v", got)
			}
			if got := settest.IDs(s.Test); !slices.Equal(got, []string{"images/Bombay_3.jpg=1.0",
				"images/Bengal_3.jpg=0.0"}) {
				t.Errorf("test %v", got)
			}
			if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "37") {
				t.Errorf("notes %q", s.Notes)
			}
		})
	}
}

// splitFile is a split with one image of each class in train and test.
func splitFile(classes ...string) string {
	var train, test []string
	for i, c := range classes {
		train = append(train, fmt.Sprintf(`["%s/1.jpg", %d, "%s"]`, c, i, c))
		test = append(test, fmt.Sprintf(`["%s/2.jpg", %d, "%s"]`, c, i, c))
	}
	return fmt.Sprintf(`{"train": [%s], "test": [%s]}`, strings.Join(train, ","), strings.Join(test, ","))
}

// TestSplitFiles: every set's folder, image folder and split file as in CoOp's DATASETS.md, and its template as in
// CoOp's zsclip.py (METHODS.md, sections 2 and 3).
func TestSplitFiles(t *testing.T) {
	for _, c := range []struct{ set, folder, images, split, template string }{
		{"caltech101", "caltech-101", "101_ObjectCategories", "split_zhou_Caltech101.json", "a photo of a {}."},
		{"oxfordpets", "oxford_pets", "images", "split_zhou_OxfordPets.json", "a photo of a {}, a type of pet."},
		{"flowers102", "oxford_flowers", "jpg", "split_zhou_OxfordFlowers.json", "a photo of a {}, a type of flower."},
		{"food101", "food-101", "images", "split_zhou_Food101.json", "a photo of {}, a type of food."},
		{"dtd", "dtd", "images", "split_zhou_DescribableTextures.json", "{} texture."},
		{"eurosat", "eurosat", "2750", "split_zhou_EuroSAT.json", "a centered satellite photo of {}."},
		{"ucf101", "ucf101", "UCF-101-midframes", "split_zhou_UCF101.json", "a photo of a person doing {}."},
		{"stanfordcars", "stanford_cars", "", "split_zhou_StanfordCars.json", "a photo of a {}."},
		{"sun397", "sun397", "SUN397", "split_zhou_SUN397.json", "a photo of a {}."},
		{"cub200", "CUB_200_2011", "images", "split_zhou_anything.json", "a photo of a {}."},
	} {
		t.Run(c.set, func(t *testing.T) {
			root := datatest.Tree(t, series(filepath.Join(c.folder, c.images), 2, "b_c", "a")...)
			datatest.Write(t, root, map[string]string{c.folder + "/" + c.split: splitFile("b_c", "a")})
			for _, dir := range []string{root, filepath.Join(root, c.folder)} {
				s := mustOpen(t, source.Config{Set: c.set, Root: dir})
				if !slices.Equal(s.Classes, []string{"b c", "a"}) || len(s.Train) != 2 || len(s.Test) != 2 ||
					s.Template != c.template {
					t.Errorf("%+v", s)
				}
				if want := filepath.Join(root, c.folder, c.images, "b_c", "1.jpg"); s.Train[0].Path != want {
					t.Errorf("%s, want %s", s.Train[0].Path, want)
				}
			}
		})
	}
}

// The folder of one set is not opened as another set that also has images/CLASS/: neither by the split file, whose name
// contains its set, nor by the folders.
func TestForeignSplitFile(t *testing.T) {
	root := datatest.Tree(t, series("food-101/images", 4, "apple_pie", "sushi")...)
	datatest.Write(t, root, map[string]string{"food-101/split_zhou_Food101.json": splitFile("apple_pie", "sushi")})
	at := filepath.Join(root, "food-101")
	for _, set := range []string{"dtd", "cub200"} {
		_, err := openSet(source.Config{Set: set, Root: at})
		goldentest.WantError(t, err, "split_zhou_Food101.json", "another set than "+set, "data.set")
	}
	if s := mustOpen(t, source.Config{Set: "food101", Root: at}); len(s.Train) != 2 {
		t.Errorf("%d images", len(s.Train))
	}
}

func TestSplitFileErrors(t *testing.T) {
	root := datatest.Tree(t, petFiles...)
	for name, c := range map[string]struct {
		text  string
		words []string
	}{
		"cut":      {pets[:100], []string{"ends early"}},
		"list":     {`[]`, []string{`"["`, "train"}},
		"no test":  {`{"train": []}`, []string{"missing"}},
		"empty":    {`{"train": [], "test": []}`, []string{"no images"}},
		"twice":    {`{"train": [], "train": [], "test": []}`, []string{"twice"}},
		"more":     {splitFile("a") + "{}", []string{"data after the object"}},
		"parts":    {`{"train": [["a.jpg", 0]], "test": []}`, []string{"train[0]", "2 parts"}},
		"label":    {`{"train": [["a.jpg", 0.5, "x"]], "test": []}`, []string{"train[0]", "whole number"}},
		"negative": {`{"train": [["a.jpg", -1, "x"]], "test": []}`, []string{"-1", "out of range"}},
		"huge": {`{"train": [["a.jpg", 99999999, "x"]], "test": []}`, []string{"99999999",
			"out of range"}},
		"up":       {`{"train": [["../a.jpg", 0, "x"]], "test": []}`, []string{"../a.jpg", "leaves"}},
		"absolute": {`{"train": [["/etc/passwd", 0, "x"]], "test": []}`, []string{"/etc/passwd", "absolute"}},
		"two names": {`{"train": [["a.jpg", 0, "x"], ["b.jpg", 0, "y"]], "test": []}`, []string{`"y"`, `"x"`,
			"train[1]"}},
		"two labels": {`{"train": [["images/Bombay_1.jpg", 0, "x"], ["b.jpg", 1, "x"]], "test": []}`,
			[]string{`"x"`, "labels 0 and 1"}},
		"control": {`{"train": [["a.jpg", 0, "x\ny"]], "test": []}`, []string{"not a class name"}},
		"duplicate": {`{"train": [["Bombay_1.jpg", 0, "x"]], "test": [["Bombay_1.jpg", 0, "x"]]}`,
			[]string{"Bombay_1.jpg twice"}},
		"only in test": {`{"train": [["Bombay_1.jpg", 0, "x"]], "test": [["Bombay_2.jpg", 1, "y"]]}`,
			[]string{`"y"`, "no training images"}},
		"no tests": {`{"train": [["Bombay_1.jpg", 0, "x"]], "test": []}`, []string{"no test images"}},
		"some missing": {`{"train": [["Bombay_1.jpg", 0, "x"], ["no.jpg", 0, "x"], ["nope.jpg", 0, "x"]],
			"test": [["Bombay_2.jpg", 0, "x"]]}`,
			[]string{"2 of the 4", filepath.Join(root, "images", "no.jpg"), "missing", "data.corrupt: skip"}},
		"all missing": {`{"train": [["z/no.jpg", 0, "x"]], "test": []}`, []string{"z/no.jpg", filepath.Join(root,
			"images")}},
		"not UTF-8 is text": {"{\"train\": [[\"a.jpg\", 0, \"\x01\"]], \"test\": []}", []string{"invalid character"}},
	} {
		t.Run(name, func(t *testing.T) {
			datatest.Write(t, root, map[string]string{"split_zhou_OxfordPets.json": c.text})
			_, err := openSet(source.Config{Set: "oxfordpets", Root: root})
			goldentest.WantError(t, err, append(c.words, "split_zhou_OxfordPets.json")...)
		})
	}
}

func TestSplitFileSkips(t *testing.T) {
	root := datatest.Tree(t, petFiles[1:]...)
	datatest.Write(t, root, map[string]string{"split_zhou_OxfordPets.json": pets, "images/Bengal_2.jpg": ""})
	s := mustOpen(t, source.Config{Set: "oxfordpets", Root: root, Corrupt: data.Skip})
	if len(s.Train) != 2 || len(s.Val) != 0 || len(s.Test) != 2 || len(s.Skipped) != 2 ||
		s.Skipped[0].Reason != "is missing" || s.Skipped[1].Reason != "is empty" {
		t.Errorf("%v", s.Skipped)
	}
}

// TestLabelGaps: a part of a split file keeps the order of its labels.
func TestLabelGaps(t *testing.T) {
	root := datatest.Tree(t, series("images", 2, "x", "y")...)
	datatest.Write(t, root, map[string]string{"split_zhou_Food101.json": `{"train": [["x/1.jpg", 90, "x"],
		["y/1.jpg", 7, "y"]], "test": [["x/2.jpg", 90, "x"]]}`})
	s := mustOpen(t, source.Config{Set: "food101", Root: root})
	if !slices.Equal(s.Classes, []string{"y", "x"}) || s.Train[0].Label != 1 || !strings.Contains(s.Notes[0],
		"renumbered") {
		t.Errorf("%q %v %q", s.Classes, settest.IDs(s.Train), s.Notes)
	}
}

func TestMissingRelease(t *testing.T) {
	for set, want := range map[string][]string{
		"caltech101": {"caltech-101/split_zhou_Caltech101.json", "caltech-101/101_ObjectCategories"},
		"oxfordpets": {"oxford_pets/split_zhou_OxfordPets.json", "oxford_pets/annotations/trainval.txt",
			"oxford_pets/images"},
		"flowers102": {"oxford_flowers/split_zhou_OxfordFlowers.json", "oxford_flowers/imagelabels.mat",
			"oxford_flowers/jpg"},
		"food101": {"food-101/split_zhou_Food101.json", "food-101/meta/train.txt"},
		"dtd":     {"dtd/split_zhou_DescribableTextures.json", "dtd/labels/train1.txt"},
		"eurosat": {"eurosat/split_zhou_EuroSAT.json", "eurosat/2750"},
		"ucf101": {"ucf101/split_zhou_UCF101.json", "ucf101/UCF-101-midframes",
			"ucf101/ucfTrainTestlist/trainlist01.txt"},
		"cub200":       {"CUB_200_2011/images.txt", "CUB_200_2011/train_test_split.txt"},
		"stanfordcars": {"stanford_cars/split_zhou_StanfordCars.json"},
		"sun397":       {"sun397/split_zhou_SUN397.json", "sun397/Training_01.txt"},
		"fgvcaircraft": {"fgvc_aircraft/variants.txt", "fgvc_aircraft/images_variant_train.txt"},
		"imagenet":     {"imagenet/classnames.txt", "imagenet/images/train"},
		"imagenetv2": {"imagenetv2/classnames.txt",
			"imagenetv2/imagenetv2-matched-frequency-format-val"},
		"imagenet-sketch": {"imagenet-sketch/classnames.txt", "imagenet-sketch/images"},
		"imagenet-a":      {"imagenet-adversarial/classnames.txt", "imagenet-adversarial/imagenet-a"},
		"imagenet-r":      {"imagenet-rendition/classnames.txt", "imagenet-rendition/imagenet-r"},
	} {
		root := datatest.Tree(t, "other/1.png")
		_, err := openSet(source.Config{Set: set, Root: root})
		words := []string{set, root, "looked for", "set data.root to the folder that holds"}
		for _, w := range want {
			words = append(words, filepath.Join(root, w))
			_, w, _ = strings.Cut(w, "/")
			words = append(words, filepath.Join(root, w))
		}
		goldentest.WantError(t, err, words...)
		_, err = openSet(source.Config{Set: set, Root: filepath.Join(root, "nowhere")})
		goldentest.WantError(t, err, "nowhere", "does not exist")
	}
}

func FuzzSplitFile(f *testing.F) {
	for _, s := range []string{pets, splitFile("a", "b"), `{"train": [["a", "1", "b"]], "x": {"y": [1]}, "test": []}`,
		`{"train": [[[[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := readSplit(source.WithoutBOM(strings.NewReader(string(raw))))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		if len(l.Items) == 0 {
			t.Error("a split file without images")
		}
		for _, it := range l.Items {
			if !filepath.IsLocal(it.Path) || l.Names[it.Label] == "" || it.Label < 0 {
				t.Fatalf("%+v", it)
			}
		}
	})
}
