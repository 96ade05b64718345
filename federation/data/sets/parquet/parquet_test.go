package parquet

import (
	"context"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// put copies files of testdata/parquet into a new folder under other names.
func put(t testing.TB, files map[string]string) string {
	t.Helper()
	texts := map[string]string{}
	for to, from := range files {
		texts[to] = datatest.ReadTestdata(t, filepath.Join("parquet", from))
	}
	return datatest.Write(t, t.TempDir(), texts)
}

// red returns the red of every image, divided by 10: the number of the image (tools/golden/parquet.py).
func red(t testing.TB, list []data.Example) []int {
	t.Helper()
	var out []int
	err := data.Decode(context.Background(), list, 4, data.Refuse, datatest.Decode,
		func(_ int, img image.Image) (int, error) {
			r, g, b, _ := img.At(1, 1).RGBA()
			if g>>8 != 200 || b>>8 != 7 {
				return 0, fmt.Errorf("green %d, blue %d", g>>8, b>>8)
			}
			return int(r>>8) / 10, nil
		},
		func(_ int, n int, _ *data.BadImage) error { out = append(out, n); return nil })
	goldentest.NoError(t, err)
	return out
}

// TestParquetForms: pyarrow's compressions, encodings and page versions give the same set (tools/golden/parquet.py:
// seven images with labels 2 0 1 2 0 1 0 and names apple_pie, zebra and Ant).
func TestParquetForms(t *testing.T) {
	for _, form := range []string{"none", "snappy", "gzip", "zstd", "plain", "v2", "v2none", "pages", "delta",
		"index"} {
		t.Run(form, func(t *testing.T) {
			root := put(t, map[string]string{"data/train-00000-of-00001.parquet": form + ".parquet",
				"data/test-00000-of-00001-0a1b.parquet": "snappy.parquet"})
			s := mustOpen(t, source.Config{Set: "parquet", Root: root})
			if !slices.Equal(s.Classes, []string{"apple pie", "zebra", "Ant"}) || s.Domains != nil || len(s.Notes) > 0 {
				t.Errorf("%q %q %q", s.Classes, s.Domains, s.Notes)
			}
			if got := data.Labels(s.Train); !slices.Equal(got, []int{2, 0, 1, 2, 0, 1, 0}) || len(s.Test) != 7 {
				t.Errorf("labels %v", got)
			}
			if got := red(t, s.Train); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6}) {
				t.Errorf("images %v", got)
			}
			back := slices.Clone(s.Train)
			slices.Reverse(back)
			if got := red(t, back); !slices.Equal(got, []int{6, 5, 4, 3, 2, 1, 0}) {
				t.Errorf("images backwards %v", got)
			}
			if s.Train[5].ID != "data/train-00000-of-00001.parquet#00000005" || s.Train[5].Stamp == "" {
				t.Errorf("%+v", s.Train[5])
			}
		})
	}
}

// TestParquetLayouts: all places of a data set's files; validation is the test split if there is none.
func TestParquetLayouts(t *testing.T) {
	for name, files := range map[string][2]string{
		"plain":         {"train.parquet", "test.parquet"},
		"configuration": {"plain_text/train-00000-of-00001.parquet", "plain_text/test-00000-of-00001.parquet"},
		"folders":       {"default/train/0000.parquet", "default/test/0000.parquet"},
		"partial":       {"default/partial-train/0000.parquet", "default/validation/0000.parquet"},
		"data folders":  {"data/train/part-0.parquet", "data/test/part-0.parquet"},
		"capitals":      {"Training.PARQUET", "cats_TEST_0.parquet"},
	} {
		t.Run(name, func(t *testing.T) {
			root := put(t, map[string]string{files[0]: "snappy.parquet", files[1]: "zstd.parquet",
				".cache/train.parquet": "words.parquet"})
			s := mustOpen(t, source.Config{Set: "parquet", Root: root})
			if len(s.Train) != 7 || len(s.Test) != 7 || len(s.Val) != 0 {
				t.Errorf("%d %d %d", len(s.Train), len(s.Val), len(s.Test))
			}
		})
	}
	t.Run("shards", func(t *testing.T) {
		root := put(t, map[string]string{"train-00000-of-00002.parquet": "snappy.parquet",
			"train-00001-of-00002.parquet":      "gzip.parquet",
			"validation-00000-of-00001.parquet": "none.parquet", "test-00000-of-00001.parquet": "unlabelled.parquet",
			"extra.parquet": "words.parquet"})
		s := mustOpen(t, source.Config{Set: "parquet", Root: root})
		if len(s.Train) != 14 || len(s.Test) != 7 || s.Train[7].ID != "train-00001-of-00002.parquet#00000000" {
			t.Errorf("%d %d", len(s.Train), len(s.Test))
		}
		for _, word := range []string{"extra.parquet is ignored", "no labels", "val serves as test"} {
			settest.WantNote(t, s, word)
		}
	})
	t.Run("one file", func(t *testing.T) {
		root := put(t, map[string]string{"pets/all.parquet": "snappy.parquet", "pets/more.parquet": "gzip.parquet"})
		s := mustOpen(t, source.Config{Set: "parquet", Root: filepath.Join(root, "pets")})
		// by class (0, 1, 2) and file, the 14 rows are all#1 all#4 all#6 more#1 more#4 more#6, all#2 all#5 more#2
		// more#5 and all#0 all#3 more#0 more#3: the last of the six and of each four is a test image
		if got := settest.IDs(s.Test); !slices.Equal(got, []string{"more.parquet#00000003=2.0",
			"more.parquet#00000005=1.0", "more.parquet#00000006=0.0"}) || len(s.Train) != 11 {
			t.Errorf("%v", got)
		}
		settest.WantNote(t, s, "two of every ten")
		if got := settest.IDs(s.Train)[:2]; !slices.Equal(got, []string{"all.parquet#00000000=2.0",
			"all.parquet#00000001=0.0"}) {
			t.Errorf("not in the order of the files: %v", got)
		}
	})
	t.Run("a file", func(t *testing.T) {
		root := put(t, map[string]string{"pets/all.parquet": "pages.parquet"})
		s := mustOpen(t, source.Config{Set: "parquet", Root: filepath.Join(root, "pets", "all.parquet")})
		if got := s.Counts(s.Test); !slices.Equal(got, []int{1, 1, 1}) { // of three, two and two images
			t.Errorf("test images %v", got)
		}
	})
}

func TestParquetWords(t *testing.T) {
	root := put(t, map[string]string{"train.parquet": "words.parquet", "test.parquet": "words.parquet"})
	s := mustOpen(t, source.Config{Set: "parquet", Root: root})
	if !slices.Equal(s.Classes, []string{"a", "b c"}) || !slices.Equal(s.Domains, []string{"photo", "sketch"}) ||
		len(s.Notes) > 0 {
		t.Errorf("%q %q %q", s.Classes, s.Domains, s.Notes)
	}
	if got := settest.IDs(s.Train); !slices.Equal(got, []string{"train.parquet#00000000=1.1",
		"train.parquet#00000001=0.0", "train.parquet#00000002=1.0", "train.parquet#00000003=0.1"}) {
		t.Errorf("%v", got)
	}
	goldentest.NoError(t, s.DropUnreadable(context.Background(), 2, datatest.Decode, nil))
	if len(s.Train) != 3 || len(s.Skipped) != 2 || !strings.Contains(s.Skipped[0].Reason, "no image bytes") ||
		s.Skipped[0].Name != "train.parquet#00000001" {
		t.Errorf("%v", s.Skipped)
	}
	if got := red(t, s.Train); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("%v", got)
	}
}

// TestParquetNames: if the file does not name its classes, dataset_infos.json, README.md and data.class_names do.
func TestParquetNames(t *testing.T) {
	names := []string{"a", "b", "c", "crab", "e", "f", "g", "Hen_House"}
	var list, numbered []string
	for i, n := range names {
		list = append(list, `"`+n+`"`)
		numbered = append(numbered, fmt.Sprintf("          '%d': %s", i, n))
	}
	files := map[string]string{"train.parquet": "numbers.parquet", "test.parquet": "numbers.parquet"}
	for name, c := range map[string]struct {
		files   map[string]string
		names   map[string]string
		classes []string
	}{
		"none":   {nil, nil, []string{"3", "7"}},
		"config": {nil, map[string]string{"7": "seven"}, []string{"3", "seven"}},
		"infos": {map[string]string{"dataset_infos.json": `{"default": {"features": {
			"image": {"_type": "Image"}, "x": [{"a": 1}], 
			"fine_label": {"names": [` + strings.Join(list, ",") + `], "_type": "ClassLabel"}}}}`}, nil,
			[]string{"crab", "Hen House"}},
		"README": {map[string]string{"README.md": "---\nlicense: mit\ndataset_info:\n  features:\n  - name: image\n " +
			"   dtype: image\n  - name: fine_label\n    dtype:\n      class_label:\n        names:\n" +
			strings.Join(numbered, "\n") + "\n---\n# A set\n"}, nil, []string{"crab", "Hen House"}},
		"READMEs": {map[string]string{"README.md": "\ufeff---\r\ndataset_info:\r\n- config_name: x\r\n  features:\r\n" +
			"  - name: fine_label\r\n    dtype:\r\n      class_label:\r\n        names: [" + strings.Join(list, ",") +
			"]\r\n---\r\n"}, nil, []string{"crab", "Hen House"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := datatest.Write(t, put(t, files), c.files)
			s := mustOpen(t, source.Config{Set: "parquet", Root: root, ClassNames: c.names})
			if !slices.Equal(s.Domains, []string{"art", "real"}) || s.Train[0].Domain != 1 {
				t.Errorf("%q %v", s.Domains, settest.IDs(s.Train))
			}
			if !slices.Equal(s.Classes, c.classes) || !slices.Equal(data.Labels(s.Train), []int{1, 0, 0, 1}) {
				t.Errorf("%q %v", s.Classes, data.Labels(s.Train))
			}
		})
	}
	_, err := openSet(source.Config{Set: "parquet", Root: datatest.Write(t, put(t, files), map[string]string{
		"dataset_infos.json": `{"default": {"features": {"fine_label": {"names": [` + strings.Join(list[:7], ",") +
			`], "_type": "ClassLabel"}}}}`})})
	goldentest.WantError(t, err, "column fine_label: label 7 is out of range: expected 0 to 6")
	for name, text := range map[string]string{"README.md": "---\na: [\n---\n", "dataset_infos.json": "[]"} {
		_, err := openSet(source.Config{Set: "parquet", Root: datatest.Write(t, put(t, files),
			map[string]string{name: text})})
		goldentest.WantError(t, err, name, "data.class_names")
	}
	root := put(t, files)
	if err := os.Symlink("README.md", filepath.Join(filepath.Dir(root), "README.md")); err != nil { // cannot be opened
		t.Skip(err)
	}
	_, err = openSet(source.Config{Set: "parquet", Root: root})
	goldentest.WantError(t, err, "README.md", "names of classes")
}

func TestParquetErrors(t *testing.T) {
	for file, words := range map[string][]string{
		"noimage.parquet": {"no image column", `"text"`, "struct with bytes"},
		"lists.parquet":   {"no image column"},
		"null.parquet":    {"row 1", "no label"},
	} {
		_, err := openSet(source.Config{Set: "parquet", Root: put(t, map[string]string{"train.parquet": file,
			"test.parquet": file})})
		goldentest.WantError(t, err, append(words, ".parquet")...)
	}
	for _, file := range []string{"brotli.parquet", "lz4.parquet"} {
		_, err := openSet(source.Config{Set: "parquet", Root: put(t, map[string]string{"train.parquet": file,
			"test.parquet": "none.parquet"})})
		goldentest.WantError(t, err, "train.parquet", "compression", "snappy")
	}
	for file, says := range map[string]string{"none.parquet": "earlier files",
		"numbers.parquet": "labels are text in some files and numbers in others"} {
		_, err := openSet(source.Config{Set: "parquet", Root: put(t, map[string]string{"train.parquet": "words.parquet",
			"test.parquet": file})})
		goldentest.WantError(t, err, "train.parquet", "label", says)
	}
	root := put(t, map[string]string{"train.parquet": "words.parquet"})
	wordParquet(t, filepath.Join(root, "test.parquet"), "a")
	_, err := openSet(source.Config{Set: "parquet", Root: root})
	goldentest.WantError(t, err, "only some images have a domain")
	root = datatest.Tree(t, "a/x.txt")
	_, err = openSet(source.Config{Set: "parquet", Root: root})
	goldentest.WantError(t, err, "no Parquet files", filepath.Join(root, "train-*.parquet"),
		filepath.Join(root, "data"))
	_, err = openSet(source.Config{Set: "parquet", Root: put(t, map[string]string{"one/train.parquet": "none.parquet",
		"two/train.parquet": "none.parquet"})})
	goldentest.WantError(t, err, `"one"`, `"two"`, "data.root")
	root = datatest.Write(t, put(t, map[string]string{"train.parquet": "none.parquet", "test.parquet": "none.parquet"}),
		map[string]string{"train-1.parquet": "PAR1 and no more"})
	_, err = openSet(source.Config{Set: "parquet", Root: root})
	goldentest.WantError(t, err, "train-1.parquet", "does not end in PAR1")
	datatest.Write(t, root, map[string]string{"a-train.parquet": string(filetest.Read(t, datatest.Testdata(t, "parquet",
		"null.parquet")))}) // row 1 has no label: row 0 and the file's classes are left out too
	if s := mustOpen(t, source.Config{Set: "parquet", Root: root, Corrupt: data.Skip}); len(s.Skipped) != 2 ||
		len(s.Train) != 7 || len(s.Test) != 7 {
		t.Errorf("%v", s.Skipped)
	}
}

// Names of splits are also recognised in the names of Parquet files.
func TestSplitOfName(t *testing.T) {
	_, err := splitOf("a/test-of-train.parquet")
	goldentest.WantError(t, err, "test-of-train", "test and train", "rename")
}
