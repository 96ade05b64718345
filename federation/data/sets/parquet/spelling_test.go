package parquet

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
)

type wordRow struct {
	Image []byte `parquet:"image"`
	Label string `parquet:"label,dict"`
}

// wordParquet writes one row for each label, without an image.
func wordParquet(t *testing.T, path string, labels ...string) {
	t.Helper()
	rows := convert.Slice(labels, func(label string) wordRow { return wordRow{[]byte("no image"), label} })
	goldentest.NoError(t, parquet.WriteFile(path, rows))
}

// A column of splits decides where the file's name does not, and must not name another split than the file's name.
func TestColumnOfSplits(t *testing.T) {
	type row struct{ Image, Label, Split string }
	for _, c := range []struct{ file, split, wrong string }{{"all", "test", ""}, {"train", "fold 3", ""},
		{"all", "fold 3", `column Split: split "fold 3": expected train`},
		{"train", "Validation", `split "Validation": expected`}} {
		root := t.TempDir()
		rows := []row{{"", "a", "train"}, {"", "b", "train"}, {"", "a", c.split}, {"", "b", "train"}}
		goldentest.NoError(t, parquet.WriteFile(filepath.Join(root, c.file+".parquet"), rows))
		set, err := openSet(source.Config{Set: "parquet", Root: root})
		if c.wrong != "" {
			goldentest.WantError(t, err, c.wrong)
			continue
		}
		goldentest.NoError(t, err)
		if got := settest.IDs(set.Test); c.split == "test" && !slices.Equal(got, []string{"all.parquet#00000002=0.0"}) {
			t.Errorf("%v", got)
		}
	}
}

// One class in two spellings is refused, as in lists and folders: underscores in names are read as spaces, and texts
// are converted to lower case.
func TestSpelling(t *testing.T) {
	write := func(names ...string) string {
		root := t.TempDir()
		for _, split := range []string{"train.parquet", "test.parquet"} {
			wordParquet(t, filepath.Join(root, split), names...)
		}
		return root
	}
	for _, names := range [][2]string{{"b_c", "b c"}, {"Cat", "cat"}} {
		_, err := openSet(source.Config{Set: "parquet", Root: write("a", names[0], names[1])})
		goldentest.WantError(t, err, "class", names[0], names[1], "expected one spelling")
	}
	root := write("a", "b_c")
	wordParquet(t, filepath.Join(root, "train-1.parquet")) // a part without rows
	if s := mustOpen(t, source.Config{Set: "parquet", Root: root}); !slices.Equal(s.Classes, []string{"a", "b c"}) ||
		len(s.Notes) > 0 {
		t.Errorf("%q %v %q", s.Classes, settest.IDs(s.Train), s.Notes)
	}
}
