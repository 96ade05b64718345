package onnx

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"

	"github.com/edsrzf/mmap-go"
	"google.golang.org/protobuf/encoding/protowire"
)

func field(number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
}

// Memory stays bounded for a file of some megabytes, with each way to read it. Field 7 of a model is its graph, field 1
// of a graph a node, field 1 of a node the name of an input.
func TestFilesAreBounded(t *testing.T) {
	deep := []byte{}
	for range 400 { // a graph in an attribute of a node of a graph
		deep = field(1, field(5, field(6, deep)))
	}
	dir := t.TempDir()
	for want, b := range map[string][]byte{
		"more than 4194304 messages":   field(7, bytes.Repeat(field(1, nil), maxParts+1)),
		"4194304 messages and strings": field(7, field(1, bytes.Repeat(field(1, nil), maxParts+1))),
		"nested more than 200 deep":    field(7, deep),
		"it holds a group": field(7, field(5, append(append([]byte{2 << 3, byte(TensorProto_FLOAT)},
			protowire.AppendGroup(protowire.AppendTag(nil, 9, protowire.StartGroupType), 9,
				field(1, make([]byte, minExternal)))...), 1<<3, 0))),
		"a group":         field(7, protowire.AppendTag(nil, 99, protowire.StartGroupType)),
		"cut short":       field(7, make([]byte, 40))[:30],
		"it has no graph": {},
		"unexpected EOF": append(protowire.AppendTag(nil, 7, protowire.BytesType), 0xff, 0xff, 0xff, 0xff,
			7),
		"variable length integer overflow": bytes.Repeat([]byte{0xff}, 12),
		"not an ONNX model, or cut sh":     []byte("pickle"),
	} {
		path := filepath.Join(dir, "m.onnx")
		filetest.Write(t, path, b)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := OpenFile(dir, "m.onnx")
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) && !slices.Contains([]string{"a group"}, want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %s", err, want)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 256 {
			t.Errorf("%s: %d MiB allocated", want, used)
		}
		if _, err := ReadFile(path); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the whole file: %v", want, err)
		}
	}
	goldentest.NoError(t, os.Mkdir(filepath.Join(dir, "folder.onnx"), 0o755))
	goldentest.NoError(t, os.Truncate(filepath.Join(dir, "m.onnx"), 3<<30))
	for name, want := range map[string]string{"folder.onnx": "is not a file", "m.onnx": "less than 2 GiB",
		"none.onnx": "no such file"} {
		_, err := ReadFile(filepath.Join(dir, name))
		goldentest.WantErrorOf(t, name, err, want)
	}
}

// A tensor of the file itself stays there if the file is in its folder or behind a link inside; behind a link out of
// the folder it is read.
func TestOpenFileLeavesWeights(t *testing.T) {
	dir := weights(t)
	m := stored(func(*TensorProto) {})
	m.Graph.Initializer = append(m.Graph.Initializer, &TensorProto{Name: "large", DataType: int32(TensorProto_FLOAT),
		Dims: []int64{16, 32}, RawData: bytes.Repeat([]byte("abcd"), 16*32)})
	m.Graph.Initializer[1].ProtoReflect().SetUnknown([]byte{14 << 3, 0}) // data_location: DEFAULT, as onnx.save writes
	b, err := Marshal(m)
	goldentest.NoError(t, err)
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "m.onnx"), b, 0o644),
		os.WriteFile(filepath.Join(dir, "sub", "m.onnx"), b, 0o644),
		os.WriteFile(filepath.Join(dir, "sub", "w.bin"), []byte("0123456789ab"), 0o644),
		os.Symlink("m.onnx", filepath.Join(dir, "link.onnx")),
		os.WriteFile(filepath.Join(filepath.Dir(dir), "m.onnx"), b, 0o644),
		os.Symlink("../m.onnx", filepath.Join(dir, "out.onnx")),
	} {
		goldentest.NoError(t, err)
	}
	for _, c := range []struct{ location, files string }{
		{"m.onnx", "m.onnx w.bin"}, {"sub/m.onnx", "sub/m.onnx sub/w.bin"}, {"link.onnx", "link.onnx w.bin"},
		{"out.onnx", "w.bin"},
	} {
		got, err := OpenFile(dir, c.location)
		goldentest.NoError(t, err)
		files, err := ExternalFiles(got)
		if err != nil || strings.Join(files, " ") != c.files {
			t.Errorf("%s: files %v, %v; want %s", c.location, files, err, c.files)
		}
		if err := Embed(got, dir); err != nil || string(got.Graph.Initializer[0].RawData) != "456789ab" ||
			!bytes.Equal(got.Graph.Initializer[1].RawData, m.Graph.Initializer[1].RawData) {
			t.Errorf("%s: other weights, %v", c.location, err)
		}
	}
}

// A file that is cut short while it is read is an error; the process goes on.
func TestFileIsCutWhileRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not cut a file that is mapped")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	tensor := &TensorProto{Name: "w", DataType: int32(TensorProto_FLOAT), Dims: []int64{1 << 16},
		RawData: make([]byte, 4<<16)}
	b, err := Marshal(&ModelProto{Graph: &GraphProto{Name: "g", Initializer: []*TensorProto{tensor, tensor}}})
	goldentest.NoError(t, err)
	filetest.Write(t, path, b)
	f, _, err := open(path)
	goldentest.NoError(t, err)
	defer f.Close()
	whole, err := mmap.Map(f, mmap.RDONLY, 0)
	goldentest.NoError(t, err)
	defer whole.Unmap()
	for _, size := range []int64{5 << 15, 0} { // within the first tensor, and all
		goldentest.NoError(t, os.Truncate(path, size))
		_, err := externalised(whole, dir, "m.onnx")
		goldentest.WantErrorOf(t, fmt.Sprint(size), err, "cut short while it was read")
	}
}
