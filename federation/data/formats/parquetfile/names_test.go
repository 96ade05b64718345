package parquetfile

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

type labelled struct {
	Img struct {
		Bytes []byte `parquet:"bytes,optional"`
		Path  string `parquet:"path"`
	} `parquet:"img"`
	Label  int32  `parquet:"fine_label"`
	Other  int64  `parquet:"coarse_label"`
	Domain string `parquet:"domain,optional"`
	Score  float64
}

// write writes rows to a file of a folder, a group of rows for every two, and opens it.
func write[T any](t *testing.T, dir string, rows []T, o ...parquet.WriterOption) *File {
	t.Helper()
	path := filepath.Join(dir, "x.parquet")
	filetest.Folder(t, dir)
	err := parquet.WriteFile(path, rows, append([]parquet.WriterOption{parquet.MaxRowsPerRowGroup(2)}, o...)...)
	goldentest.NoError(t, err)
	f, err := Open(path)
	goldentest.NoError(t, err)
	return f
}

func rowsOf(n int) []labelled {
	rows := make([]labelled, n)
	for i := range rows {
		rows[i].Img.Bytes, rows[i].Label, rows[i].Other = []byte{byte(i), 9}, int32(i%2), int64(i)
		rows[i].Domain = []string{"Art", "", "Photo"}[i%3]
	}
	rows[n-1].Img.Bytes = nil
	return rows
}

const labels = `{"info": {"features": {"fine_label": {"_type": "ClassLabel", "names": ["cat", "dog"]}, ` +
	`"x": {"_type": "Value", "names": ["y"]}, "y": 7}}}`

// Columns, classes and values of a file of five rows, by hand.
func TestColumns(t *testing.T) {
	f := write(t, t.TempDir(), rowsOf(5), parquet.KeyValueMetadata("huggingface", labels))
	infos := t.TempDir() // are not read where the file names the classes
	filetest.Write(t, filepath.Join(infos, "dataset_infos.json"), "{")
	c, features, err := f.FindColumns(infos)
	if err != nil || c.Image.Name() != "bytes" || c.Label.Name() != "fine_label" || c.Domain.Name() != "domain" ||
		fmt.Sprint(features["fine_label"].Names, features["x"].Names, features["y"].Names) != "[cat dog] [] []" {
		t.Fatalf("%+v, %v, %v", c, features, err)
	}
	label, err := f.Values(c.Label)
	if err != nil || fmt.Sprint(label.Rows, label.Values) != "[0 1 0 1 0] [{false 0 } {false 1 }]" {
		t.Errorf("%+v, %v", label, err)
	}
	domain, err := f.Values(c.Domain)
	if err != nil || fmt.Sprint(domain.Rows) != "[0 -1 1 0 -1]" || domain.Values[1].Name(nil) != "Photo" {
		t.Errorf("%+v, %v", domain, err)
	}
	for number, want := range map[int64]string{0: "cat", 1: "dog", 2: "2", -1: "-1"} {
		if got := (Value{Number: number}).Name([]string{"cat", "dog"}); got != want {
			t.Errorf("%d is %s", number, got)
		}
	}
	x := NewImagePages()
	image := func(group int, row int64) string {
		b, err := x.Bytes(ChunkID{f, group, c.Image.Index()}, row)
		return fmt.Sprint(b, " ", err)
	}
	for _, c := range []struct {
		group int
		row   int64
		want  string
	}{{0, 0, "[0 9] <nil>"}, {1, 1, "[3 9] <nil>"}, {0, 1, "[1 9] <nil>"}, {2, 0, "[] the row holds no image bytes"},
		{1, 0, "[2 9] <nil>"}} {
		if got := image(c.group, c.row); got != c.want {
			t.Errorf("group %d, row %d: %s", c.group, c.row, got)
		}
	}
	if len(x.cached) != 3 || x.cached[2].Group != 1 { // each page is read once
		t.Errorf("%+v", x.cached)
	}
	if got := image(0, 2); !strings.HasPrefix(got, "[] ") || strings.HasSuffix(got, "<nil>") {
		t.Error(got)
	}
	small := &ImagePages{maxBytes: 1, chunks: map[ChunkID]*pqChunk{}}
	for range 2 {
		for group := range 2 {
			if _, err := small.Bytes(ChunkID{f, group, c.Image.Index()}, 0); err != nil {
				t.Error(err)
			}
		}
	}
	if len(small.cached) != 1 {
		t.Errorf("the page in use alone is kept: %d pages", len(small.cached))
	}
	bad := write(t, t.TempDir(), rowsOf(1), parquet.KeyValueMetadata("huggingface", "{"))
	_, _, err = bad.FindColumns()
	goldentest.WantError(t, err, `its metadata "huggingface" are not JSON`)
	none := write(t, t.TempDir(), []struct{ Image, Class float64 }{{1, 2}})
	_, _, err = none.FindColumns()
	goldentest.WantError(t, err, `no image column among ["Image" "Class"]: expected binary`)
	unlabelled := write(t, t.TempDir(), []struct {
		Image string
		Class float64
		Lists []int32 `parquet:"label"`
	}{{"a", 1, nil}})
	_, _, err = unlabelled.FindColumns()
	goldentest.WantError(t, err, "no label column among")
	_, err = unlabelled.chunk(0, 2)
	goldentest.WantError(t, err, "a column holds lists")
	own := write(t, t.TempDir(), []struct {
		Photo []byte `parquet:"Image"`
		Kind  int32  `parquet:"Species"`
	}{{[]byte("a"), 1}},
		parquet.KeyValueMetadata("huggingface",
			`{"info": {"features": {"Species": {"_type": "ClassLabel", "names": ["a"]}}}}`))
	if c, _, err := own.FindColumns(); err != nil || c.Label.Name() != "Species" || c.Domain != nil {
		t.Errorf("%+v, %v", c, err)
	}
	type photo struct {
		Bytes []byte `parquet:"bytes"`
	}
	const class = `{"_type": "ClassLabel", "names": ["a"]}`
	art := parquet.KeyValueMetadata("huggingface", `{"info": {"features": {"style": `+class+`, "artist": `+class+`}}}`)
	labels := write(t, t.TempDir(), []struct {
		Image         photo `parquet:"image"`
		Style, Artist int32
	}{{}}, art)
	_, _, err = labels.FindColumns()
	goldentest.WantError(t, err, "each of the columns artist, style may be the label: rename one to label")
	images := write(t, t.TempDir(), []struct{ Left, Right photo }{{}})
	_, _, err = images.FindColumns()
	goldentest.WantError(t, err, "each of the columns Left, Right may be the image: rename one to image")
}

// Class names come from the file, or else from dataset_infos.json or README.md, for the configuration of the file's
// folder, of the folder above, or the only one.
func TestClassNames(t *testing.T) {
	json := func(configs ...string) string {
		var out []string
		for _, c := range configs {
			name, classes, _ := strings.Cut(c, ":")
			out = append(out,
				fmt.Sprintf(`"%s": {"features": {"fine_label": {"_type": "ClassLabel", "names": ["%s"]}}}`, name,
					strings.ReplaceAll(classes, " ", `","`)))
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	yaml := func(names string) string {
		return "---\ndataset_info:\n  features:\n  - name: fine_label\n    dtype:\n      class_label:\n" +
			"        names: " + names + "\n  - name: x\n    dtype: int32\n---\ntext"
	}
	for _, c := range []struct{ file, text, folder, want string }{
		{"dataset_infos.json", json("a:x y", "b:z w"), "b", "[z w] <nil>"},
		{"dataset_infos.json", json("a:x y", "b:z w"), "a/train", "[x y] <nil>"},
		{"dataset_infos.json", json("a:x y", "b:x y"), "c", "[x y] <nil>"},
		{"dataset_infos.json", json("a:x y"), "c", "[x y] <nil>"},
		{"dataset_infos.json", json("a:x y", "b:z w"), "c",
			`it names the classes of several configurations, ["a" "b"], in different ways`},
		{"dataset_infos.json", "{", "c", "repair or remove it; class names may be given in data.class_names"},
		{"dataset_infos.json", `{"a": {"features": {}}}`, "c", "[] <nil>"},
		{"README.md", yaml("{'1': b, '0': a}"), "c", "[a b] <nil>"},
		{"README.md", yaml("[a, b]"), "c", "[a b] <nil>"},
		{"README.md", yaml("{'0': a, '2': b}"), "c", `class names: "2" is not one of 0 to 1`},
		{"README.md", yaml("{'-1': a}"), "c", `"-1" is not one of 0 to 0`},
		{"README.md", strings.TrimPrefix(yaml("[a]"), "---\n"), "c", "[] <nil>"},
		{"README.md", strings.Replace(yaml("[a]"), "\n---", "", 1), "c", "[] <nil>"},
		{"README.md",
			"---\ndataset_info:\n- config_name: c\n  features:\n  - name: fine_label\n" +
				"    dtype:\n      class_label:\n        names: [p]\n- config_name: d\n---\n", "c", "[p] <nil>"},
		{"README.md", "---\ndataset_info: text\n---\n", "c", "[] <nil>"}, {"x", "", "c", "[] <nil>"},
	} {
		root := t.TempDir()
		filetest.Write(t, filepath.Join(root, c.file), c.text)
		f := write(t, filepath.Join(root, c.folder), rowsOf(1))
		_, features, err := f.FindColumns(filepath.Join(root, "none"), root)
		if got := fmt.Sprint(features["fine_label"].Names, " ", err); !strings.Contains(got, c.want) {
			t.Errorf("%s %.60q in %s: %s, want %s", c.file, c.text, c.folder, got, c.want)
		}
	}
}
