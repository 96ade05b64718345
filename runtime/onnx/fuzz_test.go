package onnx_test

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
)

// seeds are models with everything that a file may contain: functions, subgraphs, sparse tensors, external data.
func seeds(f *testing.F) [][]byte {
	outside := &onnx.TensorProto{Name: "w", DataType: int32(float), Dims: []int64{2}}
	onnx.SetExternal(outside, onnx.External{File: "w.bin", Offset: 4, Length: 8})
	sparse := &onnx.SparseTensorProto{Dims: []int64{4}, Values: &onnx.TensorProto{Name: "s", DataType: int32(float),
		Dims: []int64{1}, FloatData: []float32{1}}, Indices: &onnx.TensorProto{DataType: 7, Dims: []int64{1},
		Int64Data: []int64{3}}}
	large := &onnx.TensorProto{Name: "large", DataType: int32(float), Dims: []int64{16, 32}, RawData: make([]byte,
		4*16*32)}
	var out [][]byte
	for _, version := range []int64{9, 12, 18} {
		m := model(version, call("first", "x x yes", "c", 2), node("Softmax", "c", "d"),
			node("Squeeze", "d", "e", ints("axes", 0)), node("If", "yes", "y", subgraph("then_branch",
				node("ReduceSum", "e", "r", ints("axes", 1))), subgraph("else_branch", node("Clip", "e", "q"))))
		m.Functions = []*onnx.FunctionProto{function()}
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSetIdProto{Domain: "own", Version: 1})
		m.Graph.Initializer = []*onnx.TensorProto{outside, large}
		m.Graph.SparseInitializer = []*onnx.SparseTensorProto{sparse}
		b := onnxtest.Marshal(f, m)
		out = append(out, b)
	}
	return out
}

// FuzzOpenFile reads arbitrary bytes with OpenFile. The result is an error of one line, or the same model that ReadFile
// returns; an accepted model can be upgraded, written and read again.
func FuzzOpenFile(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	dir := f.TempDir()
	filetest.Write(f, filepath.Join(dir, "w.bin"), "0123456789ab")
	f.Fuzz(func(t *testing.T, b []byte) { same(t, dir, b) })
}

// FuzzFields sets one field of a model to any number and any name; see FuzzOpenFile.
func FuzzFields(f *testing.F) {
	models := seeds(f)
	for i, n := range onnxtest.Numbers {
		f.Add(uint8(i), uint16(7*i), n, "../w.bin")
		f.Add(uint8(i), uint16(11*i), -n, "x")
	}
	dir := f.TempDir()
	filetest.Write(f, filepath.Join(dir, "w.bin"), "0123456789ab")
	f.Fuzz(func(t *testing.T, which uint8, field uint16, number int64, name string) {
		m := &onnx.ModelProto{}
		goldentest.NoError(t, proto.Unmarshal(models[int(which)%len(models)], m))
		list := onnxtest.Fields(m)
		if at := list[int(field)%len(list)]; at.Text {
			at.Name(name)
		} else {
			at.Number(number)
		}
		if b, err := onnx.Marshal(m); err == nil {
			same(t, dir, b)
		}
	})
}

func same(t *testing.T, dir string, b []byte) {
	filetest.Write(t, filepath.Join(dir, "m.onnx"), b)
	m, err := onnx.OpenFile(dir, "m.onnx")
	if err != nil {
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Fatalf("not one line: %q", err)
		}
		return
	}
	if err := onnx.Embed(m, dir); err != nil {
		t.Fatalf("what lies in files was checked and cannot be read: %v", err)
	}
	whole, err := onnx.ReadFile(filepath.Join(dir, "m.onnx"))
	if err != nil {
		return // for example, one part of the file is both raw data and external data
	}
	goldentest.NoError(t, onnx.Embed(whole, dir))
	if !proto.Equal(m, whole) {
		t.Fatal("the file is another model with its weights left in it")
	}
	if err := onnx.Upgrade(m); err != nil {
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Fatalf("not one line: %q", err)
		}
		return
	}
	again := onnxtest.Marshal(t, m)
	goldentest.NoError(t, proto.Unmarshal(again, &onnx.ModelProto{}))
}
