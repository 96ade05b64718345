package onnx

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// stored is a model with one tensor of 8 bytes at offset 4 in another file.
func stored(change func(*TensorProto)) *ModelProto {
	t := &TensorProto{Name: "w", DataType: int32(TensorProto_FLOAT), Dims: []int64{2}}
	SetExternal(t, External{File: "w.bin", Offset: 4, Length: 8})
	change(t)
	return &ModelProto{Graph: &GraphProto{Initializer: []*TensorProto{t}}}
}

// weights is a folder with w.bin, big.bin, a subfolder, and links to files inside and outside.
func weights(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "model")
	big := filepath.Join(dir, "big.bin")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "w.bin"), []byte("0123456789ab"), 0o644),
		os.WriteFile(filepath.Join(root, "secret"), []byte("0123456789ab"), 0o644),
		os.Symlink("w.bin", filepath.Join(dir, "alias")),
		os.Symlink("../secret", filepath.Join(dir, "out")),
		os.Symlink("..", filepath.Join(dir, "up")),
		os.WriteFile(big, nil, 0o644),
		os.Truncate(big, 3<<30), // a sparse file, which must not be read
	} {
		goldentest.NoError(t, err)
	}
	return dir
}

func set(key, value string) func(*TensorProto) {
	return func(t *TensorProto) {
		for _, e := range t.ExternalData {
			if e.Key == key {
				e.Value = value
			}
		}
	}
}

// All readers of external data use the same check; Embed reads all of it. For ONNX Runtime a copy of the model names
// the file behind a link.
func TestEmbed(t *testing.T) {
	dir := weights(t)
	secret := filepath.Join(filepath.Dir(dir), "secret")
	for _, c := range []struct {
		change func(*TensorProto)
		want   string // the bytes, or part of the error
		good   bool
	}{
		{func(*TensorProto) {}, "456789ab", true},
		{set("location", "alias"), "456789ab", true},
		{func(t *TensorProto) { t.ExternalData = t.ExternalData[:2] }, "456789ab", true}, // without length
		{func(t *TensorProto) { t.Dims = append(slices.Repeat([]int64{1}, 63), 2) }, "456789ab", true},
		{func(t *TensorProto) { t.Dims = append(slices.Repeat([]int64{1}, 64), 2) }, "at most 64 are", false},
		{set("location", "../w.bin"), "not a path inside the folder", false},
		{set("location", "sub/../../secret"), "not a path inside the folder", false},
		{set("location", secret), "not a path inside the folder", false},
		{set("location", ""), "not a path inside the folder", false},
		{set("location", `..\secret`), "not a path inside the folder", false},
		{set("location", "w\n.bin"), "not a path inside the folder", false},
		{set("location", strings.Repeat("w/", 5000)), "not a path inside the folder", false},
		{set("location", "out"), "is a link to", false},
		{set("location", "up/secret"), "is a link to", false},
		{set("location", "sub"), "is not a file", false},
		{set("location", "none.bin"), "none.bin", false},
		{func(t *TensorProto) { t.ExternalData = nil }, "not a path inside the folder", false},
		{func(t *TensorProto) { t.ExternalData = append(t.ExternalData, t.ExternalData[0]) }, "twice", false},
		{set("offset", "5"), "8 bytes at 5", false},
		{set("offset", "-1"), "no place in a file", false},
		{set("offset", "9223372036854775807"), "no place in a file", false},
		{set("offset", "9223372036854775808"), "which is no number", false},
		{set("length", "x"), `length of its external data is "x"`, false},
		{set("length", "-1"), "no place in a file", false},
		{set("length", "7"), "which take 8", false},
		{set("length", "9"), "which take 8", false},
		{func(t *TensorProto) { t.DataType = int32(TensorProto_STRING) }, "type STRING cannot lie in a file", false},
		{func(t *TensorProto) { t.DataType = 99 }, "type 99 cannot lie in a file", false},
		{func(t *TensorProto) { t.Dims = []int64{1 << 40, 1 << 40} }, "out of range", false},
		{func(t *TensorProto) { t.Dims = []int64{-2} }, "out of range", false},
		{func(t *TensorProto) {
			set("location", "big.bin")(t)
			set("length", "2147000000")(t) // below 2 GiB by less than the metadata's room
			t.Dims = []int64{536750000}
		}, "2 GiB", false},
	} {
		m := stored(c.change)
		err := Embed(m, dir)
		w := m.Graph.Initializer[0]
		if c.good && (err != nil || string(w.RawData) != c.want || IsExternal(w) || w.ExternalData != nil) {
			t.Errorf("%v: %v", w, err)
		}
		if !c.good && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("error %v, expected one line with %q", err, c.want)
		}
	}
	for _, name := range []string{"w.bin", "alias"} {
		m := stored(set("location", name))
		got, folder, err := LocateExternal(m, dir)
		goldentest.NoError(t, err)
		if e, err := ExternalOf(got.Graph.Initializer[0]); err != nil || e.File != "w.bin" ||
			filepath.Base(folder) != "model" || (got == m) != (name == "w.bin") {
			t.Errorf("%s is located at %+v in %s, %v", name, e, folder, err)
		}
	}
}

// Tensors are found and checked anywhere in a model.
func TestExternalDataIsCheckedEverywhere(t *testing.T) {
	dir := weights(t)
	bad := func() *TensorProto { return stored(set("location", "../secret")).Graph.Initializer[0] }
	in := func(a *AttributeProto) *NodeProto {
		return &NodeProto{OpType: "Constant", Output: []string{"y"}, Attribute: []*AttributeProto{a}}
	}
	sparse := func() *SparseTensorProto { return &SparseTensorProto{Values: bad()} }
	value := func() *NodeProto { return in(&AttributeProto{Name: "value", T: bad()}) }
	for what, change := range map[string]func(*ModelProto){
		"initializer": func(m *ModelProto) { m.Graph.Initializer = []*TensorProto{bad()} },
		"sparse initializer": func(m *ModelProto) {
			m.Graph.SparseInitializer = []*SparseTensorProto{sparse()}
		},
		"indices": func(m *ModelProto) {
			m.Graph.SparseInitializer = []*SparseTensorProto{{Indices: bad()}}
		},
		"attribute": func(m *ModelProto) { m.Graph.Node = []*NodeProto{value()} },
		"list in an attribute": func(m *ModelProto) {
			m.Graph.Node = []*NodeProto{in(&AttributeProto{Name: "a", Tensors: []*TensorProto{bad()}})}
		},
		"sparse attribute": func(m *ModelProto) {
			m.Graph.Node = []*NodeProto{in(&AttributeProto{Name: "sparse_value", SparseTensor: sparse()})}
		},
		"list of sparse ones": func(m *ModelProto) {
			m.Graph.Node = []*NodeProto{in(&AttributeProto{Name: "a", SparseTensors: []*SparseTensorProto{sparse()}})}
		},
		"inner graph": func(m *ModelProto) {
			m.Graph.Node = []*NodeProto{in(&AttributeProto{Name: "body", G: &GraphProto{Node: []*NodeProto{value()}}})}
		},
		"one of several inner graphs": func(m *ModelProto) {
			m.Graph.Node = []*NodeProto{in(&AttributeProto{Name: "all", Graphs: []*GraphProto{{},
				{Initializer: []*TensorProto{bad()}}}})}
		},
		"function": func(m *ModelProto) { m.Functions = []*FunctionProto{{Name: "f", Node: []*NodeProto{value()}}} },
		"default attribute of a function": func(m *ModelProto) {
			m.Functions = []*FunctionProto{{Name: "f", AttributeProto: []*AttributeProto{{Name: "a", T: bad()}}}}
		},
		"training": func(m *ModelProto) {
			m.TrainingInfo = []*TrainingInfoProto{{Algorithm: &GraphProto{Initializer: []*TensorProto{bad()}}}}
		},
	} {
		m := &ModelProto{Graph: &GraphProto{}}
		change(m)
		_, _, located := LocateExternal(m, dir)
		for name, err := range map[string]error{"Check": Check(m), "CheckExternal": CheckExternal(m, dir),
			"Embed": Embed(m, dir), "LocateExternal": located} {
			goldentest.WantErrorOf(t, what+", "+name, err, "not a path inside the folder")
		}
		if !HasExternal(m) {
			t.Errorf("%s: no external data was seen", what)
		}
	}
}

// 258 is 0x0102, little-endian.
func TestRawDataOfUnsigned(t *testing.T) {
	for kind, want := range map[TensorProto_DataType]string{TensorProto_UINT32: "\x02\x01\x00\x00",
		TensorProto_UINT64: "\x02\x01\x00\x00\x00\x00\x00\x00"} {
		if got := RawData(&TensorProto{DataType: int32(kind), Uint64Data: []uint64{258}}); string(got) != want {
			t.Errorf("%v: %q", kind, got)
		}
	}
}
