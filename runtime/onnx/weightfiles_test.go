package onnx_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
)

// WeightFiles rejects a file that was written, replaced (with the same size and time) or removed after a model named
// it. It accepts an unchanged file, and other files.
func TestWeightsThatChangeAreSeen(t *testing.T) {
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	put := func(path, text string, at time.Time) {
		t.Helper()
		filetest.Write(t, path, text)
		goldentest.NoError(t, os.Chtimes(path, at, at))
	}
	named := func(file string) *onnx.ModelProto {
		w := &onnx.TensorProto{Name: "w", DataType: int32(float), Dims: []int64{2}}
		onnx.SetExternal(w, onnx.External{File: file, Length: 8})
		return &onnx.ModelProto{Graph: &onnx.GraphProto{Initializer: []*onnx.TensorProto{w}}}
	}
	for what, change := range map[string]func(path string){
		"written at another time": func(path string) { put(path, "abcdefgh", at.Add(time.Second)) },
		"of another size":         func(path string) { put(path, "12345678+", at) },
		"replaced": func(path string) {
			put(path+".new", "abcdefgh", at)
			goldentest.NoError(t, os.Rename(path+".new", path))
		},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "w")
		put(path, "12345678", at)
		put(filepath.Join(dir, "v"), "12345678", at)
		var s onnx.WeightFiles
		for range 2 {
			for _, m := range []*onnx.ModelProto{named("w"), named("v"), {Graph: &onnx.GraphProto{}}} {
				goldentest.NoError(t, s.Check(m, dir))
			}
		}
		change(path)
		goldentest.WantErrorOf(t, what, s.Check(named("w"), dir), path, "changed while it is used: start again")
		if err := s.Check(named("v"), dir); err != nil {
			t.Error(err)
		}
		goldentest.NoError(t, os.Remove(path))
		goldentest.WantErrorOf(t, "gone", s.Check(named("w"), dir), path)
	}
}
