package checkpoint

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// claim rewrites both sizes of the member a/data/0 in the central directory of a ZIP file, which readers use, and keeps
// the length of the file. Offsets are those of the ZIP format's central file header: 20 the compressed size, 24 the
// other one, 46 the name.
func claim(t testing.TB, file []byte, packed, unpacked uint32) []byte {
	t.Helper()
	file = bytes.Clone(file)
	name := bytes.LastIndex(file, []byte("a/data/0"))
	if at := name - 46; name < 0 || at < 0 || string(file[at:at+4]) != "PK\x01\x02" {
		t.Fatal("the archive has no central header of a/data/0")
	}
	binary.LittleEndian.PutUint32(file[name-46+20:], packed)
	binary.LittleEndian.PutUint32(file[name-46+24:], unpacked)
	return file
}

// liars are small archives that claim to hold two gigabytes, stored and compressed.
func liars(t testing.TB) map[string][]byte {
	const n, most = 1 << 29, 1<<32 - 2
	big := tensorOf(n, 0, tuple(n), tuple(1))
	return map[string][]byte{
		"stored": claim(t, zipOf(t, zip.Store, "data.pkl", big, "data/0", "0123456789abcdef"), most, most),
		"packed": claim(t, zipOf(t, zip.Deflate, "data.pkl", big, "data/0", strings.Repeat("\x00", 1<<20)), most, most),
		"newline": bytes.ReplaceAll(zipOf(t, zip.Deflate, "data.pkl", tensorOf(4, 0, tuple(4), tuple(1)), "byteorder",
			"little"), []byte("a/"), []byte("\n/")),
		"strided": claim(t, zipOf(t, zip.Store, "data.pkl", tensorOf(n, 0, tuple(1<<14, 1<<14), tuple(1, 1<<14)),
			"data/0", "0123456789abcdef"), most, most),
	}
}

// Memory depends on the bytes in a file, and not on the sizes that the file claims.
func TestArchivesThatLieAboutTheirSize(t *testing.T) {
	want := map[string]string{"newline": `"\n/data.pkl"`, "stored": "of a file of", "packed": "as no weights do",
		"strided": "of a file of"}
	for name, file := range liars(t) {
		before := allocated()
		err := opening(t, file)
		if err == nil || !strings.Contains(err.Error(), want[name]) || !strings.Contains(err.Error(), `"0"`) {
			t.Errorf("%s: error %v, want one with %q", name, err, want[name])
			continue
		}
		oneLined(t, err)
		if used := allocated() - before; used > 8<<20 {
			t.Errorf("%s: %d MB allocated for a file of %d bytes", name, used>>20, len(file))
		}
	}
}

// Every kind of file, truncated at every byte, gives an error that names the file, and no tensors.
func TestCutAnywhere(t *testing.T) {
	for _, name := range []string{"tricky.pt", "legacy.pt", "huggingface/model.safetensors"} {
		whole := filetest.Read(t, filepath.Join("testdata", name))
		path := filepath.Join(t.TempDir(), filepath.Base(name))
		filetest.Write(t, path, whole)
		for n := len(whole) - 1; n >= 0; n -= 1 + len(whole)/5000 {
			goldentest.NoError(t, os.Truncate(path, int64(n)))
			c, err := Open(path, Options{})
			if err == nil {
				c.Close()
				t.Fatalf("%s, cut to %d of %d bytes, opens", name, n, len(whole))
			}
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("%s, cut to %d bytes: %v does not name the file", name, n, err)
			}
			oneLined(t, err)
		}
	}
}

// For files with a wrong name, the bytes determine the format, and the error for other files names the file.
func TestMislabelled(t *testing.T) {
	read := func(name string) []byte {
		return filetest.Read(t, filepath.Join("testdata", name))
	}
	jpeg := "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01"
	for _, c := range []struct {
		name, content, want string // want is "" if it is still read
	}{
		{"model.safetensors", string(read("tricky.pt")), ""},
		{"model.safetensors", string(read("legacy.pt")), "header length"},
		{"weights.pt", string(read("huggingface/model.safetensors")), ""},
		{"weights.pt", string(read("huggingface/config.json")), "not a checkpoint"},
		{"weights.pt", jpeg, "not a checkpoint"},
		{"weights.bin", "<!DOCTYPE html><html>", "not a checkpoint"},
		{"model.safetensors", string(read("huggingface/config.json")), "header length"},
		{"model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"},
		{"weights.pt", string(zipOf(t, zip.Store, "word/document.xml", "<xml/>")), "0 data.pkl"},
		{"weights.pt", "PK\x05\x06" + strings.Repeat("\x00", 18), "not a checkpoint"},
		{"weights.pt", "\x80\x04K\x01.", "magic number is missing"},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		filetest.Write(t, path, c.content)
		f, err := Open(path, Options{})
		switch {
		case err == nil:
			f.Close()
			if c.want != "" {
				t.Errorf("%s with %.20q opens, want %q", c.name, c.content, c.want)
			}
		case c.want == "" || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path):
			t.Errorf("%s with %.20q: %v, want %q and the path", c.name, c.content, err, c.want)
		default:
			oneLined(t, err)
		}
	}
}

// An index of shards may name only files in its own folder that hold the listed tensors.
func TestHostileShards(t *testing.T) {
	const index, a, b = "model.safetensors.index.json", "model-00001-of-00002.safetensors",
		"model-00002-of-00002.safetensors"
	var m struct {
		Weights map[string]string `json:"weight_map"`
	}
	goldentest.ReadJSON(t, filepath.Join("testdata/sharded", index), &m)
	first := ""
	for name, file := range m.Weights {
		if file == a && (first == "" || name < first) {
			first = name
		}
	}
	for _, c := range []struct {
		to      string
		missing string // a missing shard
		want    []string
	}{
		{to: "../" + a, want: []string{"want the name of a file in the same folder"}},
		{to: "/etc/passwd", want: []string{"want the name of a file in the same folder"}},
		{to: "..", want: []string{"want the name of a file in the same folder"}},
		{to: "sub/" + a, want: []string{"want the name of a file in the same folder"}},
		{to: "a\nb", want: []string{"want the name of a file in the same folder"}},
		{to: strings.Repeat("\ufffd", 2000), want: []string{"want the name of a file in the same folder"}},
		{to: "", want: []string{"want the name of a file in the same folder"}},
		{to: index, want: []string{"its shard", "not a checkpoint"}},
		{to: ".", want: []string{"its shard", "not a regular file"}},
		{to: "config.json", want: []string{"its shard", "not a checkpoint"}},
		{to: b, want: []string{"is not in the shard " + b}},
		{to: a, missing: a, want: []string{"its shard", "no such file"}},
	} {
		dir := filetest.Copy(t, t.TempDir(), "testdata/sharded")
		if c.missing != "" {
			os.Remove(filepath.Join(dir, c.missing))
		}
		m.Weights[first] = c.to
		raw := goldentest.JSON(t, m)
		filetest.Write(t, filepath.Join(dir, index), raw)
		f, err := Open(dir, Options{})
		if err == nil {
			f.Close()
			t.Errorf("a shard %q opens", c.to)
			continue
		}
		for _, want := range append(c.want, index, fmt.Sprintf("%q", first)) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("a shard %q: error %v lacks %q", c.to, err, want)
			}
		}
		oneLined(t, err)
	}
}

// A tensor's name that is too long to quote is refused with its length.
func TestLongNames(t *testing.T) {
	name := strings.Repeat("\x7f", 513)
	dir := t.TempDir()
	index := filepath.Join(dir, "model.safetensors.index.json")
	filetest.Write(t, index, `{"weight_map":{"`+name+`":"a"}}`)
	_, err := Open(dir, Options{})
	_, other := handlesOf(map[string]*view{name: nil}, "x", nil)
	for _, err := range []error{err, other} {
		if err == nil || !strings.Contains(err.Error(), "a name of 513 bytes, the limit is 512") {
			t.Errorf("error %v", err)
		}
	}
}

// FuzzIndex opens a folder of two shards with any bytes as its index.
func FuzzIndex(f *testing.F) {
	const index = "model.safetensors.index.json"
	raw := filetest.Read(f, filepath.Join("testdata/sharded", index))
	f.Add(raw)
	f.Add([]byte(`{"weight_map":{"a":"../../../etc/passwd","b":"model.safetensors.index.json"}}`))
	f.Add([]byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","a":"model-00009-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":["x"],"b":null}}`))
	dir := filetest.Copy(f, f.TempDir(), "testdata/sharded")
	f.Fuzz(func(t *testing.T, b []byte) {
		filetest.Write(t, filepath.Join(dir, index), b)
		c, err := Open(dir, Options{})
		if err != nil {
			oneLined(t, err)
			return
		}
		defer c.Close()
		for _, path := range c.WeightFiles() {
			if filepath.Dir(path) != dir {
				t.Fatalf("opened %s", path)
			}
		}
		if _, err := Detect(c); err != nil {
			oneLined(t, err)
		}
	})
}
