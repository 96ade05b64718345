package domains

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

// domainTree returns DOMAIN/CLASS/N.png for every domain and class, n images each.
func domainTree(top string, domains, classes []string, n int) []string {
	var out []string
	for _, d := range domains {
		for _, c := range classes {
			for i := range n {
				out = append(out, top+d+"/"+c+"/"+string(rune('a'+i))+".png")
			}
		}
	}
	return out
}

// TestDomainFolders opens every set that is stored as folders, at all usual places and with all usual names.
func TestDomainFolders(t *testing.T) {
	o31, home := []string{"amazon", "dslr", "webcam"}, []string{"Art", "Clipart", "Product", "Real World"}
	pacsNames := []string{"art_painting", "cartoon", "photo", "sketch"}
	for _, c := range []struct {
		set, top string
		on, want []string
	}{
		{"office31", "", o31, o31},
		{"office31", "OFFICE31/", o31, o31},
		{"office31", "office31/", o31, o31},
		{"office31", "Office-31/Original_images/", []string{"amazon/images", "dslr/images", "webcam/images"}, o31},
		{"office31", "", []string{"amazon/images", "dslr/images", "webcam/images"}, o31},
		{"office31", "domain_adaptation_images/", []string{"Amazon", "DSLR", "Webcam"}, o31},
		{"officehome", "", home, home},
		{"officehome", "office_home/", []string{"Art", "Clipart", "Product", "Real_World"}, home},
		{"officehome", "office_home/", []string{"art", "clipart", "product", "real_world"}, home},
		{"officehome", "OfficeHomeDataset_10072016/", []string{"Art", "Clipart", "Product", "RealWorld"}, home},
		{"officecaltech10", "office_caltech_10/", []string{"amazon", "caltech", "dslr", "webcam"}, []string{"amazon",
			"caltech", "dslr", "webcam"}},
		{"pacs", "PACS/", pacsNames, pacsNames},
		{"pacs", "PACS/raw_images/", pacsNames, pacsNames},
		{"pacs", "pacs/images/", pacsNames, pacsNames},
		{"pacs", "kfold/", pacsNames, pacsNames},
		{"domainnet", "DomainNet/", []string{"clipart", "infograph", "painting", "quickdraw", "real", "sketch"},
			[]string{"clipart", "infograph", "painting", "quickdraw", "real", "sketch"}},
		{"domainnet10", "domainnet/", []string{"clipart", "real"}, []string{"clipart", "real"}},
	} {
		t.Run(c.set+" "+c.top, func(t *testing.T) {
			classes := map[string][]string{"officecaltech10": {"back_pack", "mug"}, "domainnet10": {"ice_cream",
				"zebra"}}[c.set]
			if classes == nil {
				classes = []string{"dog", "paper_notebook"}
			}
			root := datatest.Tree(t, append(domainTree(c.top, c.on, classes, 5), c.top+"ImageInfo.csv")...)
			s := mustOpen(t, source.Config{Set: c.set, Root: root})
			if !slices.Equal(s.Domains, c.want) {
				t.Errorf("domains %q", s.Domains)
			}
			// Of ten images of a domain, the last two go to test.
			if len(s.Train) != 8*len(c.on) || len(s.Test) != 2*len(c.on) || len(s.Val) != 0 || len(s.Notes) == 0 &&
				c.set != "officecaltech10" && c.set != "domainnet10" {
				t.Errorf("%d train, %d test, notes %q", len(s.Train), len(s.Test), s.Notes)
			}
			last := s.Test[len(s.Test)-1]
			if got := s.Classes[last.Label]; got != strings.ReplaceAll(classes[1], "_", " ") ||
				last.Domain != len(c.want)-1 {
				t.Errorf("last test image %+v is %q", last, got)
			}
		})
	}
}

// TestOfficeHomeOrder: labels and the holdout follow torchvision's ImageFolder, which sorts TV before Table.
func TestOfficeHomeOrder(t *testing.T) {
	s := mustOpen(t, source.Config{Set: "officehome", Root: datatest.Tree(t, domainTree("", []string{"Art", "Clipart",
		"Product", "Real World"},
		[]string{"Table", "TV", "Alarm_Clock"}, 4)...)})
	if !slices.Equal(s.Classes, []string{"Alarm Clock", "TV", "Table"}) {
		t.Errorf("%q", s.Classes)
	}
	// Images 8 and 9 of a domain are the first two of its third class.
	if got := settest.IDs(s.Test)[:2]; !slices.Equal(got, []string{"Art/Table/a.png=2.0", "Art/Table/b.png=2.0"}) {
		t.Errorf("%q", got)
	}
}

// TestOfficeHomeSplits opens the folders of Dassl for domain generalisation.
func TestOfficeHomeSplits(t *testing.T) {
	var on []string
	for _, d := range []string{"art", "clipart", "product", "real_world"} {
		on = append(on, d+"/train", d+"/val")
	}
	s := mustOpen(t, source.Config{Set: "officehome", Root: datatest.Tree(t, domainTree("office_home_dg/", on,
		[]string{"Bed",
			"Bike"}, 2)...)})
	if len(s.Train) != 16 || len(s.Test) != 16 || len(s.Val) != 0 || !slices.Equal(s.Domains, []string{"Art", "Clipart",
		"Product", "Real World"}) ||
		len(s.Notes) != 2 || !strings.Contains(s.Notes[0], "val is used as the test split") {
		t.Errorf("%d %d %d %q %q", len(s.Train), len(s.Val), len(s.Test), s.Domains, s.Notes)
	}
}

// TestMostDomains: a folder of another set beside the set's own folder does not hide it.
func TestMostDomains(t *testing.T) {
	s := mustOpen(t, source.Config{Set: "officehome", Root: datatest.Tree(t, append(domainTree("office_home/",
		[]string{"Art",
			"Clipart", "Product", "Real World"},
		[]string{"Bed"}, 1), "clipart/bird/1.png")...)})
	if len(s.Domains) != 4 || s.Train[0].ID != "office_home/Art/Bed/a.png" {
		t.Errorf("%q %v", s.Domains, settest.IDs(s.Train))
	}
}

func TestDomainErrors(t *testing.T) {
	for name, c := range map[string]struct {
		set   string
		files []string
		words []string
	}{
		"missing": {"office31", []string{"a.txt"}, []string{"no Office-31", "amazon, dslr, webcam", "office31",
			"data.root"}},
		"another set": {"vlcs", []string{"caltech-101/dog/1.png"}, []string{"no VLCS: looked for folders caltech"}},
		"a domain": {"office31", []string{"amazon/mug/1.png", "dslr/mug/1.png"}, []string{"webcam does not exist",
			"Office-31"}},
		"classes": {"officecaltech10", domainTree("", []string{"amazon", "caltech", "dslr", "webcam"},
			[]string{"dog"}, 1), []string{"amazon", "back_pack"}},
		"no images": {"office31", []string{"amazon/mug/", "dslr/mug/1.png", "webcam/mug/1.png"}, []string{"amazon/mug",
			"holds no images"}},
		"no class": {"office31", []string{"amazon/", "dslr/mug/1.png", "webcam/mug/1.png"}, []string{"amazon",
			"one folder per class"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openSet(source.Config{Set: c.set, Root: datatest.Tree(t, c.files...)})
			goldentest.WantError(t, err, c.words...)
		})
	}
	_, err := openSet(source.Config{Set: "pacs", Root: filepath.Join(t.TempDir(), "none")})
	goldentest.WantError(t, err, "none", "does not exist", "data.root")
	root := datatest.Tree(t, domainTree("", []string{"art_painting", "cartoon", "photo", "sketch"}, []string{"dog"},
		2)...)
	_, err = openSet(source.Config{Set: "pacs", Root: root, Layout: "lists"})
	goldentest.WantError(t, err, "art_painting_train_kfold.txt", root, "data.layout")
	_, err = openSet(source.Config{Set: "officecaltech10", Root: datatest.Tree(t, domainTree("", []string{"amazon",
		"caltech",
		"dslr", "webcam"}, []string{"mug"}, 2)...), Layout: "pickles"})
	goldentest.WantError(t, err, "amazon_train.pkl", "webcam_test.pkl")
}

// pacsTree writes PACS with the published lists: labels from 1, and a test list with the whole domain.
func pacsTree(t *testing.T, images, lists string) string {
	t.Helper()
	domains := []string{"art_painting", "cartoon", "photo", "sketch"}
	root := datatest.Tree(t, domainTree("PACS/"+images, domains, []string{"dog", "elephant"}, 5)...)
	files := map[string]string{}
	for _, d := range domains {
		var train, cross, all string
		for k, class := range []string{"dog", "elephant"} {
			for i, name := range []string{"a", "b", "c", "d", "e"} {
				line := d + "/" + class + "/" + name + ".png " + string(rune('1'+k)) + "\n"
				all += line
				if i == 2 {
					cross += line
				} else {
					train += line
				}
			}
		}
		if d == "sketch" {
			train += "sketch/dog/n02103406_4068-1.png 1\n"
		}
		for split, text := range map[string]string{"train": train, "crossval": cross, "test": all} {
			files["PACS/"+lists+d+"_"+split+"_kfold.txt"] = text
		}
	}
	return datatest.Write(t, root, files)
}

func TestPACSLists(t *testing.T) {
	for _, c := range []struct{ images, lists string }{{"raw_images/", "label/"}, {"images/", "splits/"}, {"", ""},
		{"raw_images/", "raw_images/"},
		{"kfold/", "Train val splits and h5py files pre-read/"}} {
		root := pacsTree(t, c.images, c.lists)
		for _, layout := range []string{"auto", "lists"} {
			s := mustOpen(t, source.Config{Set: "pacs", Root: root, Layout: layout})
			if len(s.Train) != 32 || len(s.Val) != 0 || len(s.Test) != 8 || !slices.Equal(s.Classes, []string{"dog",
				"elephant"}) {
				t.Errorf("%+v: %d %d %d %q", c, len(s.Train), len(s.Val), len(s.Test), s.Classes)
			}
			if e := s.Test[1]; !strings.HasSuffix(e.ID, "art_painting/elephant/c.png") || e.Label != 1 ||
				e.Domain != 0 {
				t.Errorf("%+v", e)
			}
			if len(s.Notes) != 2 || !strings.Contains(s.Notes[0], "32 test images are also training images") {
				t.Errorf("notes %q", s.Notes)
			}
			if len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Name, "n02103406_4068-1.png") {
				t.Errorf("skipped %v", s.Skipped)
			}
		}
		s := mustOpen(t, source.Config{Set: "pacs", Root: filepath.Join(root, "PACS"), Layout: "lists-as-published"})
		if len(s.Train) != 32 || len(s.Test) != 40 || !strings.Contains(s.Notes[0], "kept as published") {
			t.Errorf("as published: %d %d %q", len(s.Train), len(s.Test), s.Notes)
		}
		s = mustOpen(t, source.Config{Set: "pacs", Root: root, Layout: "folders"})
		if len(s.Train) != 32 || len(s.Test) != 8 || !strings.HasSuffix(s.Test[1].ID, "art_painting/elephant/e.png") ||
			len(s.Notes) != 1 {
			t.Errorf("folders: %d %d %+v %q", len(s.Train), len(s.Test), s.Test[1], s.Notes)
		}
	}
}

// TestPACSDassl: Dassl's archive has no test lists; its crossval lists hold the images that are not training images.
func TestPACSDassl(t *testing.T) {
	root := pacsTree(t, "images/", "splits/")
	for _, d := range []string{"art_painting", "cartoon", "photo", "sketch"} {
		goldentest.NoError(t, os.Remove(filepath.Join(root, "PACS/splits", d+"_test_kfold.txt")))
	}
	s := mustOpen(t, source.Config{Set: "pacs", Root: root})
	if len(s.Train) != 32 || len(s.Test) != 8 || !strings.HasSuffix(s.Test[0].ID, "dog/c.png") {
		t.Errorf("%d %d %+v", len(s.Train), len(s.Test), s.Test)
	}
	goldentest.NoError(t, os.Remove(filepath.Join(root, "PACS/splits/photo_train_kfold.txt")))
	_, err := openSet(source.Config{Set: "pacs", Root: root})
	goldentest.WantError(t, err, "splits", "training", "photo")
}

// netTree is DomainNet with lists; t-shirt (327) is not among the training images of painting.
func netTree(t *testing.T, lists string) (root string, files map[string]string) {
	t.Helper()
	root = datatest.Tree(t, domainTree("DomainNet/", []string{"clipart", "painting"}, []string{"aircraft_carrier",
		"bird", "t-shirt", "zebra"}, 3)...)
	files = map[string]string{}
	numbers := map[string]string{"aircraft_carrier": "0", "bird": "22", "t-shirt": "327", "zebra": "343"}
	for _, d := range []string{"clipart", "painting"} {
		for split, names := range map[string][]string{"train": {"a", "b"}, "test": {"c"}} {
			text := ""
			for _, class := range []string{"zebra", "aircraft_carrier", "bird", "t-shirt"} {
				if d == "painting" && split == "train" && class == "t-shirt" {
					continue
				}
				for _, n := range names {
					text += d + "/" + class + "/" + n + ".png " + numbers[class] + "\n"
				}
			}
			files["DomainNet/"+lists+d+"_"+split+".txt"] = text
		}
	}
	return datatest.Write(t, root, files), files
}

func TestDomainNetLists(t *testing.T) {
	for _, lists := range []string{"", "splits/"} {
		root, _ := netTree(t, lists)
		s := mustOpen(t, source.Config{Set: "domainnet", Root: root})
		if !slices.Equal(s.Classes, []string{"aircraft carrier", "bird", "t-shirt", "zebra"}) ||
			!slices.Equal(s.Domains, []string{"clipart", "painting"}) ||
			strings.Contains(strings.Join(s.Notes, "|"), "also training images") {
			t.Errorf("%q %q %q", s.Classes, s.Domains, s.Notes)
		}
		// In the order of the lists: zebra first.
		if got := settest.IDs(s.Train); len(got) != 14 || got[0] != "DomainNet/clipart/zebra/a.png=3.0" ||
			got[8] != "DomainNet/painting/zebra/a.png=3.1" {
			t.Errorf("%q", got)
		}
		if got := data.Labels(s.Test); !slices.Equal(got, []int{3, 0, 1, 2, 3, 0, 1, 2}) {
			t.Errorf("%v", got)
		}
		s = mustOpen(t, source.Config{Set: "domainnet10", Root: filepath.Join(root, "DomainNet")})
		if len(s.Classes) != 10 || s.Classes[3] != "ice cream" || !slices.Equal(data.Labels(s.Train), []int{9, 9, 0, 0,
			9, 9, 0, 0}) {
			t.Errorf("%q %v", s.Classes, data.Labels(s.Train))
		}
	}
}

// TestDomainNetOrder: without lists, classes are in the order of the published labels, as in the lists of public code:
// aircraft_carrier 0 ... cello, cell_phone, chair ... trumpet, t-shirt, umbrella.
func TestDomainNetOrder(t *testing.T) {
	s := mustOpen(t, source.Config{Set: "domainnet", Root: datatest.Tree(t, domainTree("", []string{"real"},
		[]string{"cell_phone", "cello", "chair", "t-shirt", "trumpet", "umbrella", "The_Mona_Lisa", "tiger", "tent"},
		1)...)})
	if !slices.Equal(s.Classes, []string{"cello", "cell phone", "chair", "tent", "The Mona Lisa", "tiger", "trumpet",
		"t-shirt", "umbrella"}) {
		t.Errorf("%q", s.Classes)
	}
}

func TestDomainListErrors(t *testing.T) {
	for name, c := range map[string]struct {
		file, line string
		words      []string
	}{
		"label of another class": {"DomainNet/painting_test.txt", "painting/bird/c.png 23\n",
			[]string{"painting_test.txt: line 1", `"bird"`, "23", "22", "clipart_train.txt"}},
		"class of another label": {"DomainNet/painting_test.txt", "painting/crow/a.png 22\n", []string{"line 1",
			`"crow"`, "22", `"bird"`}},
		"no image": {"DomainNet/clipart_train.txt", "clipart/bird/x.png 22\n",
			[]string{"clipart_train.txt: line 1", "x.png does not exist", "DomainNet"}},
		"no image of a class": {"DomainNet/clipart_train.txt", "bird/x.png 22\n", []string{"x.png does not exist"}},
		"no label": {"DomainNet/clipart_train.txt", "clipart/bird/a.png\n", []string{"line 1",
			"no label"}},
		"a word for a label": {"DomainNet/clipart_train.txt", "\nclipart/bird/a.png one\n", []string{"line 2",
			`"one"`}},
		"outside": {"DomainNet/clipart_train.txt", "../../etc/passwd 1\n", []string{"line 1",
			"not a path"}},
		"no class":      {"DomainNet/clipart_train.txt", "a.png 1\n", []string{"line 1", "class folder"}},
		"empty":         {"DomainNet/clipart_train.txt", "\n", []string{"clipart_train.txt is empty"}},
		"no other list": {"DomainNet/painting_test.txt", "", []string{"no list of test images", "painting"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, _ := netTree(t, "")
			if datatest.Write(t, root, map[string]string{c.file: c.line}); c.line == "" {
				goldentest.NoError(t, os.Remove(filepath.Join(root, c.file)))
			}
			_, err := openSet(source.Config{Set: "domainnet", Root: root})
			goldentest.WantError(t, err, c.words...)
		})
	}
	root, files := netTree(t, "")
	datatest.Write(t, root, map[string]string{"DomainNet/clipart_train.txt": files["DomainNet/clipart_train.txt"] +
		"clipart/bird/x.png 22\n"})
	s := mustOpen(t, source.Config{Set: "domainnet", Root: root, Corrupt: data.Skip})
	if len(s.Train) != 14 || len(s.Skipped) != 1 {
		t.Errorf("%d, skipped %v", len(s.Train), s.Skipped)
	}
}

// TestPickledDomains opens FedBN's pickles; their paths start above the set's folder, at it, or in it.
func TestPickledDomains(t *testing.T) {
	domains := []string{"amazon", "caltech", "dslr", "webcam"}
	for _, top := range []string{"office_caltech_10/", "Office-Caltech/office_caltech_10/", ""} {
		root := datatest.Tree(t, domainTree(top, domains, []string{"mug"}, 1)...)
		datatest.Write(t, root, map[string]string{top + "amazon/mug/frame_0001.jpg": "x", top +
			"amazon/back_pack/frame_0002.jpg": "x", top + "amazon/mug/frame_0003.jpg": "x"})
		for _, table := range []string{"table_tuple_python2.pkl", "table_lists_numbers.pkl", "table_npy_objects.pkl"} {
			files := map[string]string{}
			for _, d := range domains { // all name images of amazon
				files[top+d+"_train.pkl"], files[top+d+"_test.pkl"] = table, table
			}
			datatest.CopyTestdataTo(t, root, files)
			s := mustOpen(t, source.Config{Set: "officecaltech10", Root: root})
			if len(s.Classes) != 10 || s.Classes[5] != "laptop computer" || !slices.Equal(data.Labels(s.Train),
				slices.Repeat([]int{8, 0, 8}, 4)) ||
				s.Train[1].ID != top+"amazon/back_pack/frame_0002.jpg" || len(s.Test) != 12 || s.Test[11].Domain != 3 {
				t.Errorf("%s %s: %q %q", top, table, s.Classes, settest.IDs(s.Train))
			}
		}
	}
}

func TestPickledDomainErrors(t *testing.T) {
	tree := domainTree("", []string{"amazon", "caltech", "dslr", "webcam"}, []string{"mug"}, 1)
	for pickled, words := range map[string][]string{
		"U\x0camazon/mug/1e](U\x03dog":  {"amazon_train.pkl: entry 0", "dog", "mug"},
		"U\x0camazon/mug/1e](U\x04bike": {"amazon_train.pkl: entry 0", `"bike"`, "do not match"},
		"U\x0camazon/mug/1e](K\x08":     {"amazon_train.pkl: entry 0", "amazon/mug/1 does not exist"},
		"U\x10amazon/mug/a.pnge](K\x08": {"amazon_test.pkl does not exist"},
		"U\x05mug/1e](K\x08":            {"amazon_train.pkl: entry 0", "image mug/1 does not exist"},
		"U\x011e](K\x08":                {`amazon_train.pkl: entry 0: "1" is not a path domain/class/file`},
	} {
		_, err := openSet(source.Config{Set: "officecaltech10", Root: datatest.Write(t, datatest.Tree(t, tree...),
			map[string]string{"amazon_train.pkl": "\x80\x02](" + pickled + "e\x86."})})
		goldentest.WantError(t, err, words...)
	}
}

func FuzzDomainList(f *testing.F) {
	f.Add("clipart/aircraft_carrier/clipart_001_000001.jpg 0\n")
	f.Add("a b/c.png\t3\r\n\r\n")
	f.Add("../x 1")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := readDomainList(strings.NewReader(text), "list")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q is more than a line", err)
			}
			return
		}
		for _, l := range lines {
			if !filepath.IsLocal(filepath.FromSlash(l.path)) || l.label < 0 || l.where == "" {
				t.Fatalf("%+v", l)
			}
		}
	})
}

// Folders named as splits are also recognised inside the domains of published sets.
func TestSplitsInDomains(t *testing.T) {
	office := func(amazon ...string) source.Config {
		for _, d := range []string{"dslr", "webcam"} {
			amazon = append(amazon, d+"/train/cat", d+"/val/cat")
		}
		var files []string
		for _, dir := range amazon {
			for i := range 10 {
				files = append(files, fmt.Sprintf("%s/%d.png", dir, i))
			}
		}
		return source.Config{Set: "office31", Root: datatest.Tree(t, files...)}
	}
	_, err := openSet(office("amazon/train/cat", "amazon/Training/cat", "amazon/val/cat"))
	goldentest.WantError(t, err, "Training", "train split", "keep one")
	s := mustOpen(t, office("amazon/train/cat"))
	if len(s.Train) != 28 || len(s.Test) != 22 || !strings.Contains(strings.Join(s.Notes, "|"),
		"amazon: there is no folder of test") {
		t.Errorf("%d and %d images, notes %q", len(s.Train), len(s.Test), s.Notes)
	}
}
