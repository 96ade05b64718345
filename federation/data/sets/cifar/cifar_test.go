package cifar

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"promptfed/federation/data"
	"promptfed/federation/data/datatest"
	"promptfed/federation/data/sets/settest"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// record returns a CIFAR record whose red plane counts up, whose green plane is 1 and whose blue plane is 2.
func record(label byte) []byte {
	r := make([]byte, 1+cifarPixels)
	r[0] = label
	for i := range cifarPixels / 3 {
		r[1+i], r[1+(cifarPixels/3)+i], r[1+2*(cifarPixels/3)+i] = byte(i), 1, 2
	}
	return r
}

func cifarDir(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, raw := range files {
		filetest.Write(t, filepath.Join(dir, name), raw)
	}
	return dir
}

func TestCIFAR(t *testing.T) {
	dir := cifarDir(t, map[string][]byte{
		"data_batch_1.bin": slices.Concat(record(1), record(0)), "data_batch_2.bin": record(2),
		"test_batch.bin":   record(1),
		"batches.meta.txt": []byte("red\ngreen\r\nblue\n\n"), "readme.html": nil})
	s := mustOpen(t, source.Config{Set: "cifar10-bin", Root: dir})
	if !slices.Equal(s.Classes, []string{"red", "green", "blue"}) {
		t.Errorf("classes %q", s.Classes)
	}
	if got := settest.IDs(s.Train); !slices.Equal(got, []string{"data_batch_1.bin#00000=1.0",
		"data_batch_1.bin#00001=0.0", "data_batch_2.bin#00000=2.0"}) {
		t.Errorf("train %v", got)
	}
	if got := settest.IDs(s.Test); !slices.Equal(got, []string{"test_batch.bin#00000=1.0"}) {
		t.Errorf("test %v", got)
	}
	settest.WantNote(t, s, "found 2 of 5 training files: data_batch_1.bin, data_batch_2.bin")
	img, err := s.Train[1].Image(nil)
	goldentest.NoError(t, err)
	r, g, b, a := img.At(3, 2).RGBA() // row 2, column 3: pixel 67
	if r>>8 != 67 || g>>8 != 1 || b>>8 != 2 || a>>8 != 255 {
		t.Errorf("pixel %d %d %d %d", r>>8, g>>8, b>>8, a>>8)
	}
}

func TestCIFARErrors(t *testing.T) {
	cut := cifarDir(t, map[string][]byte{"data_batch_1.bin": slices.Concat(record(1), record(2)[:100])})
	_, err := openSet(source.Config{Set: "cifar10-bin", Root: cut})
	goldentest.WantError(t, err, "data_batch_1.bin", "record 1", "100 of 3073", "truncated")
	s := mustOpen(t, source.Config{Set: "cifar10-bin", Root: cut, Corrupt: data.Skip})
	if len(s.Train) != 1 || len(s.Skipped) != 1 {
		t.Errorf("%d kept, skipped %v", len(s.Train), s.Skipped)
	}
	_, err = openSet(source.Config{Set: "cifar10-bin", Root: cifarDir(t,
		map[string][]byte{"data_batch_1.bin": record(2)[:100]}), Corrupt: data.Skip})
	goldentest.WantError(t, err, "record 0", "100 of 3073") // nothing is left of it
	_, err = openSet(source.Config{Set: "cifar10-bin", Root: cifarDir(t,
		map[string][]byte{"data_batch_1.bin": record(10)})})
	goldentest.WantError(t, err, "record 0", "label 10", "10 classes")
	_, err = openSet(source.Config{Set: "cifar10-bin", Root: t.TempDir()})
	goldentest.WantError(t, err, "data_batch_1.bin")
	_, err = readCIFARLabels(iotest.ErrReader(io.ErrClosedPipe), 10)
	goldentest.WantError(t, err, io.ErrClosedPipe.Error())
}

// TestCIFARAgainstFolders: the binary files and the folder of images have one source, so the first training image of a
// class in the folder must occur among the records of its class, pixel by pixel.
func TestCIFARAgainstFolders(t *testing.T) {
	records := mustOpen(t, source.Config{Set: "cifar10-bin", Root: goldentest.Shared(t, "cifar-10-batches-bin")})
	folder := mustOpen(t, source.Config{Set: "cifar10", Root: goldentest.Shared(t, "cifar10")})
	pixels := func(e data.Example) string {
		img, err := e.Image(datatest.Decode)
		goldentest.NoError(t, err)
		var b strings.Builder
		for i := range 1024 {
			r, g, bl, _ := img.At(i%32, i/32).RGBA()
			b.Write([]byte{byte(r >> 8), byte(g >> 8), byte(bl >> 8)})
		}
		return b.String()
	}
	have := map[string]int{}
	for _, e := range append(records.Train, records.Test...) {
		if e.Label < 2 {
			have[pixels(e)] = e.Label
		}
	}
	found := 0
	for _, e := range folder.Train {
		if e.Label < 2 {
			if l, ok := have[pixels(e)]; ok {
				if found++; l != e.Label {
					t.Errorf("%s has label %d in the binary file", e.ID, l)
				}
			}
		}
	}
	t.Logf("%d of 400 images found", found)
	if found == 0 {
		t.Error("no image of the folder occurs in the binary files")
	}
}

func FuzzCIFARLabels(f *testing.F) {
	f.Add([]byte{}, 10)
	f.Add(record(3), 10)
	f.Add(record(3)[:500], 10)
	f.Add(append(record(3), 11), 10)
	f.Fuzz(func(t *testing.T, raw []byte, classes int) {
		labels, err := readCIFARLabels(bytes.NewReader(raw), classes)
		if err == nil && len(labels)*(1+cifarPixels) != len(raw) {
			t.Fatalf("%d labels out of %d bytes", len(labels), len(raw))
		}
		for i, l := range labels {
			if int(l) >= classes || l != raw[i*(1+cifarPixels)] {
				t.Fatalf("record %d: label %d", i, l)
			}
		}
	})
}

// TestCIFARForms: the same images as pickles of Python 2 and 3 and in the binary version, opened by the folder itself
// and by the folders above it.
func TestCIFARForms(t *testing.T) {
	py := map[string]string{}
	for _, f := range []string{"data_batch_1", "data_batch_2", "test_batch", "batches.meta"} {
		py[f] = "cifar-10-batches-py/" + f
	}
	for _, dir := range []string{"", "cifar-10-batches-py/", "cifar-10/cifar-10-batches-py/", "CIFAR10/"} {
		files := map[string]string{}
		for name, from := range py {
			files[dir+name] = from
		}
		for _, set := range []string{"cifar10", "cifar10-bin"} {
			s := mustOpen(t, source.Config{Set: set, Root: datatest.CopyTestdata(t, files)})
			settest.WantImages(t, s.Train, "cifar10/data_batch_1", "cifar10/data_batch_2")
			settest.WantImages(t, s.Test, "cifar10/test_batch")
			if len(s.Classes) != 10 || s.Classes[9] != "truck" || s.Coarse != nil || s.Superclasses != nil ||
				len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "found 2 of 5") {
				t.Errorf("%s: %q %v %v %q", dir, s.Classes, s.Coarse, s.Superclasses, s.Notes)
			}
			if want := dir + "data_batch_1#00000"; s.Train[0].ID != want || s.Train[0].Stamp == "" {
				t.Errorf("%+v, want %s", s.Train[0], want)
			}
		}
	}
	for _, protocol := range []string{"cifar_protocol2", "cifar_protocol4", "cifar_protocol5"} {
		s := mustOpen(t, source.Config{Set: "cifar10", Root: datatest.CopyTestdata(t, map[string]string{
			"data_batch_1": protocol, "test_batch": protocol})})
		settest.WantImages(t, s.Test, "cifar10/data_batch_1")
	}
	both := datatest.CopyTestdata(t, map[string]string{
		"cifar-10-batches-bin/data_batch_1.bin": "cifar10_data_batch_1.bin",
		"cifar-10-batches-bin/test_batch.bin":   "cifar10_data_batch_1.bin",
		"cifar-10-batches-py/data_batch_1":      py["data_batch_2"],
		"cifar-10-batches-py/test_batch":        py["test_batch"]})
	s := mustOpen(t, source.Config{Set: "cifar10", Root: both})
	settest.WantImages(t, s.Train, "cifar10/data_batch_1")
	s = mustOpen(t, source.Config{Set: "cifar10", Root: both, Layout: "pickles"})
	settest.WantImages(t, s.Test, "cifar10/test_batch")
	_, err := openSet(source.Config{Set: "cifar10", Root: both, Layout: "folders"})
	goldentest.WantError(t, err, "train and test", both)
	_, err = openSet(source.Config{Set: "cifar10", Root: both, Layout: "domains"})
	goldentest.WantError(t, err, "data.layout", "cifar10", "pickles")
}

// Files of class names without names, with more than 256, or with anything else are errors that name the file. The
// pickles are written by hand, opcode by opcode, in protocol 2.
func TestCIFARClassNames(t *testing.T) {
	dict := func(entry string) []byte { return []byte("\x80\x02}" + entry + ".") }
	const key = "X\x0b\x00\x00\x00label_names"
	for _, c := range []struct {
		file string
		raw  []byte
		say  string
	}{
		{"batches.meta.txt", []byte("\n \n"), "has 0 class names"},
		{"batches.meta.txt", []byte(strings.Repeat("name\n", 257)), "has 257 class names"},
		{"batches.meta", dict(key + "]s"), "label_names has 0 class names"},
		{"batches.meta", dict(key + "](" + strings.Repeat("X\x01\x00\x00\x00a", 257) + "es"), "has 257 class names"},
		{"batches.meta", dict(key + "]K\x03as"), "label_names holds 3"},
		{"batches.meta", dict(key + "]X\x00\x00\x00\x00as"), `label_names holds ""`},
		{"batches.meta", dict(key + "K\x03s"), "label_names"},
		{"batches.meta", dict(""), `no "label_names"`},
	} {
		images := map[string]string{"data_batch_1": "cifar-10-batches-py/data_batch_1"}
		if strings.HasSuffix(c.file, ".txt") {
			images = map[string]string{"data_batch_1.bin": "cifar10_data_batch_1.bin"}
		}
		root := datatest.CopyTestdata(t, images)
		datatest.Write(t, root, map[string]string{c.file: string(c.raw)})
		_, err := openSet(source.Config{Set: "cifar10", Root: root})
		goldentest.WantError(t, err, c.file, c.say)
	}
}

// TestCIFAR100 checks classes, superclasses and pixels of both versions; the small test set has five classes.
func TestCIFAR100(t *testing.T) {
	root := datatest.CopyTestdata(t, map[string]string{"cifar-100/cifar-100-python/train": "cifar-100-python/train",
		"cifar-100/cifar-100-python/test":      "cifar-100-python/test",
		"cifar-100/cifar-100-python/train.bak": "cifar-100-python/train", // no training file
		"cifar-100/cifar-100-python/meta":      "cifar-100-python/meta"})
	s := mustOpen(t, source.Config{Set: "cifar100", Root: root})
	settest.WantImages(t, s.Train, "cifar100/train")
	settest.WantImages(t, s.Test, "cifar100/test")
	if !slices.Equal(s.Classes, []string{"apple", "aquarium fish", "baby", "bear", "beaver"}) || !slices.Equal(s.Coarse,
		datatest.Golden(t).Coarse) ||
		len(s.Superclasses) != 5 || s.Superclasses[3] != "large carnivores" {
		t.Errorf("%q %v %q", s.Classes, s.Coarse, s.Superclasses)
	}

	bin := map[string]string{"cifar-100-binary/train.bin": "cifar100_test.bin",
		"cifar-100-binary/test.bin": "cifar100_test.bin"}
	root = datatest.Write(t, datatest.CopyTestdata(t, bin), map[string]string{
		"cifar-100-binary/fine_label_names.txt":   "apple\naquarium_fish\nbaby\nbear\n",
		"cifar-100-binary/coarse_label_names.txt": "aquatic_mammals\nfish\nflowers\nlarge_carnivores\n"})
	s = mustOpen(t, source.Config{Set: "cifar100", Root: root})
	settest.WantImages(t, s.Test, "cifar100/test")
	// Only bear and aquarium fish have records, and the names are not the published ones.
	if !slices.Equal(s.Classes, []string{"apple", "aquarium fish", "baby", "bear"}) || s.Coarse != nil ||
		len(s.Notes) != 2 {
		t.Errorf("%q %v %q", s.Classes, s.Coarse, s.Notes)
	}
}

// TestCIFAR100Known: without lists of names, classes and superclasses are the published ones: 100 and 20, in
// alphabetical order, five classes to a superclass; aquarium_fish (1) is a fish (1), worm (99) an invertebrate (13).
func TestCIFAR100Known(t *testing.T) {
	r := make([]byte, 2+cifarPixels)
	r[0], r[1] = 1, 1
	s := mustOpen(t, source.Config{Set: "cifar100", Root: cifarDir(t, map[string][]byte{"train.bin": r,
		"test.bin": r})})
	if len(s.Classes) != 100 || !slices.IsSorted(s.Classes) || len(s.Superclasses) != 20 || len(s.Coarse) != 100 ||
		len(s.Notes) > 0 {
		t.Fatalf("%q %q %v %q", s.Classes, s.Superclasses, s.Coarse, s.Notes)
	}
	members := make([]int, 20)
	for _, c := range s.Coarse {
		members[c]++
	}
	if !slices.Equal(members, slices.Repeat([]int{5}, 20)) || s.Classes[1] != "aquarium fish" ||
		s.Superclasses[s.Coarse[1]] != "fish" ||
		s.Classes[99] != "worm" || s.Superclasses[s.Coarse[99]] != "non-insect invertebrates" || s.Coarse[99] != 13 {
		t.Errorf("%v", s.Coarse)
	}
	r2 := bytes.Clone(r)
	r2[0] = 2
	_, err := openSet(source.Config{Set: "cifar100", Root: cifarDir(t, map[string][]byte{"train.bin": r,
		"test.bin": r2})})
	goldentest.WantError(t, err, "test.bin", "record 0", `"aquarium fish"`, `"flowers"`, `"fish"`)

	s = mustOpen(t, source.Config{Set: "cifar100", Root: datatest.Tree(t, "train/oak_tree/1.png", "train/cup/2.png",
		"test/cup/3.png", "test/oak_tree/4.png")})
	if !slices.Equal(s.Classes, []string{"cup", "oak tree"}) || !slices.Equal(s.Coarse, []int{3, 17}) ||
		len(s.Notes) != 1 {
		t.Errorf("%q %v %q", s.Classes, s.Coarse, s.Notes)
	}
	s = mustOpen(t, source.Config{Set: "cifar100", Root: datatest.Tree(t, "cifar100/train/oak_tree/1.png",
		"cifar100/test/ok/3.png", "cifar100/train/ok/4.png")})
	if s.Coarse != nil || s.Superclasses != nil || len(s.Notes) != 2 {
		t.Errorf("%v %q %q", s.Coarse, s.Superclasses, s.Notes)
	}
}

func TestCIFARPickleErrors(t *testing.T) {
	for name, raw := range map[string][]byte{
		`no "data"`:    []byte("\x80\x02}U\x06labels]s."),
		`a dictionary`: []byte("\x80\x02]."),
		`numpy array`:  []byte("\x80\x02}U\x04data]s."),
		`truncated`:    []byte("\x80\x02}U\x04data"),
		`no "labels"`:  filetest.Read(t, datatest.Testdata(t, "cifar-100-python/test")),
		"record 1 has label 10, but there are 10 classes": bytes.Replace(filetest.Read(t, datatest.Testdata(t,
			"cifar-10-batches-py/data_batch_1")), []byte("(K\x06K\x09K\x00"), []byte("(K\x06K\x0aK\x00"), 1),
	} {
		_, err := openSet(source.Config{Set: "cifar10", Root: cifarDir(t, map[string][]byte{"data_batch_1": raw})})
		goldentest.WantError(t, err, "data_batch_1", name)
		_, err = openSet(source.Config{Set: "cifar10", Root: cifarDir(t, map[string][]byte{"data_batch_1": nil,
			"batches.meta": raw})})
		goldentest.WantError(t, err, "batches.meta: ")
	}
}
