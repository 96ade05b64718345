package program

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/data/datatest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// miniature writes two small sets as they are published: Office-31 with ten images of each of two classes in each
// domain, of which every ninth and tenth of a domain is for testing, and ten textures of each of two classes without
// any list, split 50/20/30 %.
func miniature(t *testing.T) string {
	t.Helper()
	var names []string
	for i := range 10 {
		for _, domain := range []string{"amazon", "dslr", "webcam"} {
			for _, class := range []string{"bike", "mug"} {
				names = append(names, fmt.Sprintf("office31/%s/%s/%02d.png", domain, class, i))
			}
		}
		names = append(names, fmt.Sprintf("dtd/images/dotted/%02d.png", i), fmt.Sprintf("dtd/images/woven/%02d.png", i))
	}
	return datatest.Tree(t, append(names, "oxford_flowers/", "unrelated/x.txt")...)
}

func countsFile(t *testing.T, text string) string {
	t.Helper()
	return filetest.Write(t, filepath.Join(t.TempDir(), "table.yaml"), text)
}

// partition compares printed sizes with the data. A missing set is no failure; another number or a folder without
// images is one.
func TestPartitionComparesPrintedSizes(t *testing.T) {
	const head = "data: {root: %s, split: %s}\ncounts:\n  paper: P (V)\n  item: Table 6\n  title: sizes\n  sets:\n"
	root := miniature(t)
	for _, c := range []struct {
		name, split, sets string
		code              int
		want              []string // patterns of the output
		err               string
	}{
		{"as printed", "given", `
    - {label: Office, set: office31, classes: 2, train: 48, test: 12, domains: 3}
    - {label: Textures, set: dtd, train: 10, val: 4, test: 6, images: 20, domains: 1}
    - {label: Pets, set: oxfordpets, classes: 37}
    - {label: CIFAR, set: cifar10, classes: 10}`, 0,
			[]string{"Office +classes +2 +2 *\n", "\n +train +48 +48 *\n +test +12 +12 *\n +domains +3 +3 *\n",
				"Textures +train +10 +10", "images +20 +20", "Pets +not found", "CIFAR +not found",
				"2 of 4 sets as in the paper, 0 not, 2 not found"}, ""},
		{"pooled", "pooled-no-val", `
    - {label: Textures, set: dtd, images: 16}`, 0, []string{"images +16 +16", "1 of 1 sets"}, ""},
		{"other numbers", "given", `
    - {label: Office, set: office31, train: 48, test: 13}
    - {label: Textures, set: dtd, classes: 1}`, 1,
			[]string{"train +48 +48 *\n", "test +13 +12 +-1\n", "classes +1 +2 +\\+1\n",
				"0 of 2 sets as in the paper, 2 not"},
			"Office differs; Textures differs"},
		{"an empty folder", "given", `
    - {label: Flowers, set: flowers102, classes: 102}`, 1,
			[]string{"Flowers +cannot be opened"}, "Flowers cannot be opened: no flowers102 in"},
		{"no such key", "given", "\n    - {label: Office, set: office31, clases: 2}", 2, nil, "counts.sets[0].clases"},
		{"no such set", "given", "\n    - {label: Office, set: office, classes: 2}", 2, nil,
			"counts.sets[0]: Office: data.set"},
		{"nothing printed", "given", "\n    - {label: Office, set: office31}", 2, nil,
			"counts.sets[0]: Office has no number"},
		{"no set", "given", "\n    - {label: Office, classes: 3}", 2, nil, "counts.sets[0] has no label or no set"},
		{"negative", "given", "\n    - {label: Office, set: office31, train: -3}", 2, nil, "negative"},
		{"no rows", "given", " []", 2, nil, "counts.sets: no data set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := fmt.Sprintf(head, root, c.split) + c.sets[1:] + "\n"
			if c.name == "no rows" {
				text = strings.Replace(text, "sets:\n", "sets: ", 1)
			}
			out, errText, code := call("partition", countsFile(t, text))
			if code != c.code || !strings.Contains(errText, c.err) || strings.Count(errText, "\n") > 1 {
				t.Errorf("exit %d, want %d, with %q; want %q in one line", code, c.code, errText, c.err)
			}
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
	table := "../../../configs/papers/fedpha/table-6.yaml"
	if _, errText, code := call("run", table); code != 2 || !strings.Contains(errText, "use promptfed partition") {
		t.Errorf("run: exit %d, %s", code, errText)
	}
	if _, errText, code := call("partition", table); code != 2 || !strings.Contains(errText, "data.root") {
		t.Errorf("a folder that does not exist: exit %d, %s", code, errText)
	}
	out, _, code := call("partition", table, "--set", "data.root="+root)
	if code != 1 || !strings.Contains(out, "CIFAR100    not found") || !strings.Contains(out, "4,105") {
		t.Errorf("FedPHA's table on the miniatures: exit %d\n%s", code, out)
	}
}

// The samples of real sets beside the module have the sizes in their README: 10 x (200 + 50) of CIFAR-10, 4 x 7 x 40 of
// PACS.
func TestPrintedSizesOfRealImages(t *testing.T) {
	for _, c := range []struct{ folder, row string }{
		{"cifar10", "{label: CIFAR-10, set: cifar10, classes: 10, train: 2000, test: 500, images: 2500, domains: 1}"},
		{"pacs", "{label: PACS, set: pacs, classes: 7, images: 1120, domains: 4}"},
	} {
		text := fmt.Sprintf("data: {root: %s}\ncounts: {sets: [%s]}\n", goldentest.Shared(t, c.folder), c.row)
		out := mustRun(t, "partition", countsFile(t, text))
		if !strings.Contains(out, "1 of 1 sets as in the paper") {
			t.Errorf("%s", out)
		}
	}
}

// FedPHA's Table 6 counts training and test images separately, FedAPPR's Table S1 together. The sums agree for the sets
// in both tables, which errors of copying would hardly allow.
func TestPrintedSizesAgree(t *testing.T) {
	sizes := map[string]int{}
	for path, images := range map[string]func(configs.CountedSet) int{
		"../../../configs/papers/fedpha/table-6.yaml":   func(s configs.CountedSet) int { return s.Train + s.Test },
		"../../../configs/papers/fedappr/table-s1.yaml": func(s configs.CountedSet) int { return -s.Images },
	} {
		table, _, err := configs.LoadCounts(path, nil)
		goldentest.NoError(t, err)
		for _, s := range table.Sets {
			if slices.Contains([]string{"caltech101", "cifar10", "cifar100", "flowers102", "oxfordpets"}, s.Set) {
				sizes[s.Set] += images(s)
			}
		}
	}
	if len(sizes) != 5 {
		t.Errorf("sets in both tables: %v", sizes)
	}
	for set, n := range sizes {
		if n != 0 {
			t.Errorf("%s: the tables differ by %d images", set, n)
		}
	}
}
