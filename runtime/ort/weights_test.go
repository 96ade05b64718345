package ort_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// safetensors writes a file in that format: header length, header, and data, with pad spaces in the header so that the
// data start at 8 + len(header), aligned or not. It returns that offset.
func safetensors(t testing.TB, path string, pad int, data []float32) int {
	t.Helper()
	header := fmt.Sprintf(`{"W":{"dtype":"F32","shape":[2,3],"data_offsets":[0,%d]}}%*s`, 4*len(data), pad, "")
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(append(file, header...), bytesOf(data)...)
	filetest.Write(t, path, file)
	return 8 + len(header)
}

func externalLinear(t testing.TB, file string, offset, length int) *onnx.ModelProto {
	b := (&builder{}).in("x", f32, dims{"B", 2}).external("W", file, offset, length, 2, 3)
	return b.node("MatMul", []string{"x", "W"}, "y").out("y", f32, dims{"B", 3}).model(t)
}

var weights = []float32{1, 2, 3, 4, 5, 6}

func checkLinear(t testing.TB, model *onnx.ModelProto, o ort.Options) {
	t.Helper()
	s := open(t, model, o)
	equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"], tensor.Of([]float32{9, 12, 15}, 1, 3))
}

func TestExternalDataAtAnyOffset(t *testing.T) {
	dir := t.TempDir()
	seen := map[int]bool{}
	for pad := range 4 {
		name := fmt.Sprintf("m%d.safetensors", pad)
		offset := safetensors(t, filepath.Join(dir, name), pad, weights)
		seen[offset%4] = true
		for _, prepack := range []bool{false, true} {
			checkLinear(t, externalLinear(t, name, offset, 24), ort.Options{WeightsDir: dir, Prepack: prepack})
		}
	}
	if len(seen) != 4 {
		t.Errorf("offsets modulo 4 seen: %v", seen)
	}
	offset := safetensors(t, filepath.Join(dir, "sub", "m.safetensors"), 1, weights)
	checkLinear(t, externalLinear(t, "sub/m.safetensors", offset, 24), ort.Options{WeightsDir: dir})
}

func symlink(t testing.TB, target, link string) {
	t.Helper()
	filetest.Folder(t, filepath.Dir(link))
	goldentest.NoError(t, os.Symlink(target, link))
}

// The Hugging Face cache keeps snapshots/REV/model.safetensors as a link to ../../blobs/HASH; some users link whole
// folders. Two files in different folders, one of them behind such a link, must also work in one graph. Links to other
// places are rejected, because a folder from an archive could turn any file that the user may read into a model.
func TestExternalDataBehindLinks(t *testing.T) {
	dir := t.TempDir()
	offset := safetensors(t, filepath.Join(dir, "blobs", "0abc"), 3, weights)
	snapshot := filepath.Join(dir, "snapshots", "r1")
	symlink(t, "../../blobs/0abc", filepath.Join(snapshot, "model.safetensors"))
	checkLinear(t, externalLinear(t, "model.safetensors", offset, 24), ort.Options{WeightsDir: snapshot})

	linked := filepath.Join(dir, "linked")
	symlink(t, snapshot, linked)
	checkLinear(t, externalLinear(t, "model.safetensors", offset, 24), ort.Options{WeightsDir: linked})

	other := safetensors(t, filepath.Join(snapshot, "deep", "second.safetensors"), 2, weights)
	b := (&builder{}).in("x", f32, dims{"B", 2}).external("W", "model.safetensors", offset, 24, 2, 3)
	b.external("V", "deep/second.safetensors", other, 24, 2, 3).node("Add", []string{"W", "V"}, "WV")
	b.node("MatMul", []string{"x", "WV"}, "y").out("y", f32, dims{"B", 3})
	s := open(t, b.model(t), ort.Options{WeightsDir: snapshot})
	equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"], tensor.Of([]float32{18, 24, 30}, 1, 3))

	out := safetensors(t, filepath.Join(dir, "elsewhere", "w"), 2, weights)
	symlink(t, filepath.Join(dir, "elsewhere", "w"), filepath.Join(snapshot, "out.safetensors"))
	_, err := ort.NewSession(externalLinear(t, "out.safetensors", out, 24), ort.Options{WeightsDir: snapshot})
	wantError(t, err, `tensor "W"`, "is a link to", "outside of the folder of the model")
}

func TestOpenTakesTheFolderOfTheFile(t *testing.T) {
	dir := t.TempDir()
	offset := safetensors(t, filepath.Join(dir, "m.safetensors"), 1, weights)
	path := filepath.Join(dir, "m.onnx")
	b := onnxtest.Marshal(t, externalLinear(t, "m.safetensors", offset, 24))
	filetest.Write(t, path, b)
	s, err := ort.Open(path, ort.Options{})
	goldentest.NoError(t, err)
	defer s.Close()
	equal(t, run(t, s, tensor.Map{"x": tensor.Of([]float32{1, 2}, 1, 2)})["y"], tensor.Of([]float32{9, 12, 15}, 1, 3))
}

func TestWrongExternalData(t *testing.T) {
	dir := t.TempDir()
	offset := safetensors(t, filepath.Join(dir, "w"), 0, weights)
	symlink(t, filepath.Join(dir, "gone"), filepath.Join(dir, "dangling"))
	for name, c := range map[string]struct {
		file           string
		offset, length int
		parts          []string
	}{
		"cut short":  {"w", offset + 1, 24, []string{`tensor "W"`, "cut short"}},
		"offset":     {"w", -1, 24, []string{`tensor "W"`, "24 bytes at -1"}},
		"length":     {"w", offset, 20, []string{`tensor "W"`, "20 bytes of w are named", "which take 24"}},
		"missing":    {"v", offset, 24, []string{`tensor "W"`, "missing"}},
		"dangling":   {"dangling", offset, 24, []string{`tensor "W"`, "missing"}},
		"above":      {"../w", offset, 24, []string{"not a path inside the folder of the model"}},
		"absolute":   {filepath.Join(dir, "w"), offset, 24, []string{"not a path inside the folder of the model"}},
		"empty name": {"", offset, 24, []string{"not a path inside the folder of the model"}},
		"folder":     {".", offset, 24, []string{"not a file of weights"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ort.NewSession(externalLinear(t, c.file, c.offset, c.length), ort.Options{WeightsDir: dir})
			wantError(t, err, c.parts...)
		})
	}
}
