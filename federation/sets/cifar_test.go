package sets

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/datatest"
)

// record is a CIFAR record whose red plane counts up, whose green plane is 1 and whose blue plane is 2.
func record(label byte) []byte {
	r := make([]byte, cifarRecord)
	r[0] = label
	for i := range cifarPlane {
		r[1+i], r[1+cifarPlane+i], r[1+2*cifarPlane+i] = byte(i), 1, 2
	}
	return r
}

func cifarDir(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, raw := range files {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCIFAR(t *testing.T) {
	dir := cifarDir(t, map[string][]byte{
		"data_batch_1.bin": slices.Concat(record(1), record(0)), "data_batch_2.bin": record(2), "test_batch.bin": record(1),
		"batches.meta.txt": []byte("red\ngreen\r\nblue\n\n"), "readme.html": nil})
	s := mustOpen(t, Config{Set: "cifar10-bin", Root: dir})
	if !slices.Equal(s.Classes, []string{"red", "green", "blue"}) {
		t.Errorf("classes %q", s.Classes)
	}
	if got := ids(s.Train); !slices.Equal(got, []string{"data_batch_1.bin#00000=1.0", "data_batch_1.bin#00001=0.0", "data_batch_2.bin#00000=2.0"}) {
		t.Errorf("train %v", got)
	}
	if got := ids(s.Test); !slices.Equal(got, []string{"test_batch.bin#00000=1.0"}) {
		t.Errorf("test %v", got)
	}
	img, err := s.Train[1].Image(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, g, b, a := img.At(3, 2).RGBA() // row 2, column 3: pixel 67
	if r>>8 != 67 || g>>8 != 1 || b>>8 != 2 || a>>8 != 255 {
		t.Errorf("pixel %d %d %d %d", r>>8, g>>8, b>>8, a>>8)
	}
}

func TestCIFARErrors(t *testing.T) {
	cut := cifarDir(t, map[string][]byte{"data_batch_1.bin": slices.Concat(record(1), record(2)[:100])})
	_, err := Open(Config{Set: "cifar10-bin", Root: cut})
	datatest.WantError(t, err, "data_batch_1.bin", "record 1", "100 of 3073", "truncated")
	s := mustOpen(t, Config{Set: "cifar10-bin", Root: cut, Corrupt: data.Skip})
	if len(s.Train) != 1 || len(s.Skipped) != 1 {
		t.Errorf("%d kept, skipped %v", len(s.Train), s.Skipped)
	}
	_, err = Open(Config{Set: "cifar10-bin", Root: cifarDir(t, map[string][]byte{"data_batch_1.bin": record(10)})})
	datatest.WantError(t, err, "record 0", "label 10", "10 classes")
	_, err = Open(Config{Set: "cifar10-bin", Root: t.TempDir()})
	datatest.WantError(t, err, "data_batch_1.bin")
}

// TestCIFARAgainstFolders: the binary files and the folder of images come from one source, so the first training image
// of a class in the folder must occur among the records of its class, pixel by pixel.
func TestCIFARAgainstFolders(t *testing.T) {
	records := mustOpen(t, Config{Set: "cifar10-bin", Root: datatest.Shared(t, "cifar-10-batches-bin")})
	folder := mustOpen(t, Config{Set: "cifar10", Root: datatest.Shared(t, "cifar10")})
	pixels := func(e data.Example) string {
		img, err := e.Image(datatest.Decode)
		if err != nil {
			t.Fatal(err)
		}
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

func FuzzReadCIFARLabels(f *testing.F) {
	f.Add([]byte{}, 10)
	f.Add(record(3), 10)
	f.Add(record(3)[:500], 10)
	f.Add(append(record(3), 11), 10)
	f.Fuzz(func(t *testing.T, raw []byte, classes int) {
		labels, err := ReadCIFARLabels(bytes.NewReader(raw), classes)
		if err == nil && len(labels)*cifarRecord != len(raw) {
			t.Fatalf("%d labels out of %d bytes", len(labels), len(raw))
		}
		for i, l := range labels {
			if int(l) >= classes || l != raw[i*cifarRecord] {
				t.Fatalf("record %d: label %d", i, l)
			}
		}
	})
}
