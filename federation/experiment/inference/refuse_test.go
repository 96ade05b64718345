package inference

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/state"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// A file is a classifier if its input is up to 1024 RGB images and its output has a score of each class.
func TestInputsOfAFile(t *testing.T) {
	value := func(name string, kind onnx.TensorProto_DataType, sizes ...int) ort.ValueInfo {
		v := ort.ValueInfo{Name: name, Type: kind}
		for _, n := range sizes {
			v.Shape = append(v.Shape, ort.Dim{Size: n})
		}
		return v
	}
	const floats, bytes = onnx.TensorProto_FLOAT, onnx.TensorProto_UINT8
	in, out := value(ClassifierInput, floats, maxFixedBatch, 3, 8, 8), value(ClassifierOutput, floats, 1, 4)
	const input, rgb, output = "its only input must be", "which is not RGB images", "its only output must be"
	for _, c := range []struct {
		in, out []ort.ValueInfo
		says    string
	}{
		{[]ort.ValueInfo{in}, []ort.ValueInfo{out}, ""},
		{[]ort.ValueInfo{value(ClassifierInput, bytes, 1, 8, 8, 3)}, []ort.ValueInfo{out}, ""},
		{nil, []ort.ValueInfo{out}, input}, {[]ort.ValueInfo{in, in}, []ort.ValueInfo{out}, input},
		{[]ort.ValueInfo{value("x", floats, 1, 3, 8, 8)}, []ort.ValueInfo{out}, input},
		{[]ort.ValueInfo{value(ClassifierInput, floats, 1, 3, 8)}, []ort.ValueInfo{out}, input},
		{[]ort.ValueInfo{value(ClassifierInput, floats, maxFixedBatch+1, 3, 8, 8)}, []ort.ValueInfo{out}, rgb},
		{[]ort.ValueInfo{value(ClassifierInput, floats, 1, 8, 8, 3)}, []ort.ValueInfo{out}, rgb},
		{[]ort.ValueInfo{value(ClassifierInput, bytes, 1, 3, 8, 8)}, []ort.ValueInfo{out}, rgb},
		{[]ort.ValueInfo{in}, nil, output}, {[]ort.ValueInfo{in}, []ort.ValueInfo{value("x", floats, 1, 4)}, output},
		{[]ort.ValueInfo{in}, []ort.ValueInfo{value(ClassifierOutput, floats, 4)}, output},
		{[]ort.ValueInfo{in}, []ort.ValueInfo{value(ClassifierOutput, floats, 1, 5)}, output},
	} {
		err := checkInputs(c.in, c.out, 4)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, %v: %v, want %q", c.in, c.out, err, c.says)
		}
	}
	for text, says := range map[string]string{`["a","b"]`: "", "[]": "are not a list of names",
		"x": "are not a list of names",
		"-": "its metadata has no " + MetaClasses} {
		m := &onnx.ModelProto{MetadataProps: []*onnx.StringStringEntryProto{{Key: "other"}}}
		if text != "-" {
			m.MetadataProps = append(m.MetadataProps, &onnx.StringStringEntryProto{Key: MetaClasses, Value: text})
		}
		got, err := classifierClasses(m)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) || err == nil &&
			len(got) != 2 {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// A run's file names its clients' backbones; a choice is one of its clients, or of a backbone.
func TestClientOfAChoice(t *testing.T) {
	r := &finishedRun{dir: "d", backbones: []string{"", "b", "a", "b"}}
	for _, c := range []struct {
		choice Choice
		want   string
	}{{Choice{Client: 1}, "1 <nil>"}, {Choice{Client: 3}, "3 <nil>"},
		{Choice{Client: 4}, "client 4 does not exist: the run has clients 0 to 3"},
		{Choice{Client: -1}, "client -1 does not exist"}, {Choice{Client: 0}, "client 0: d has no parameters of it"},
		{Choice{Client: -1, Global: true}, "1 <nil>"}, {Choice{Client: -1, Global: true, Backbone: "a"}, "2 <nil>"},
		{Choice{Client: -1, Global: true, Backbone: "c"}, "d has no clients"},
		{Choice{Client: 0, Global: true}, "client 0: d has no"}} {
		k, err := r.clientOf(c.choice)
		if got := fmt.Sprint(k, " ", err); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, want %s", c.choice, got, c.want)
		}
	}
	if got := r.byBackbone(); len(got) != 2 || got["b"] != 1 || got["a"] != 2 {
		t.Error(got)
	}
	for _, c := range []struct {
		f         Classifier
		name, own string
	}{{Classifier{Choice: Choice{Client: 3}, clients: 100}, "classifier of client 3", "client-03.onnx"},
		{Classifier{Choice: Choice{Client: 3}, clients: 101}, "classifier of client 3", "client-003.onnx"},
		{Classifier{Choice: Choice{Client: -1, Global: true}}, "global classifier", "global.onnx"},
		{Classifier{Choice: Choice{Client: 0, Global: true, Backbone: "b"}}, "global classifier as of client 0",
			"global-b.onnx"}} {
		if c.f.Choice.String() != c.name || c.f.FileName() != c.own {
			t.Errorf("%s, %s, want %s, %s", c.f.Choice, c.f.FileName(), c.name, c.own)
		}
	}
}

func TestReadRun(t *testing.T) {
	good := map[string]string{state.MetaClasses: `["a"]`, state.MetaBackbones: `["x","y"]`,
		state.MetaOwned: `[[0],null]`, state.MetaDigests: `["1",""]`}
	for says, change := range map[string]func(m map[string]string){
		"":                                         func(map[string]string) {},
		"it does not list its classes":             func(m map[string]string) { delete(m, state.MetaClasses) },
		"it does not list its owned":               func(m map[string]string) { m[state.MetaOwned] = "x" },
		"it does not list its digests":             func(m map[string]string) { m[state.MetaDigests] = "x" },
		"the digests of 1; run the":                func(m map[string]string) { m[state.MetaDigests] = `["1"]` },
		"2 backbones of clients, the classes of 1": func(m map[string]string) { m[state.MetaOwned] = "[[0]]" },
	} {
		dir, meta := t.TempDir(), maps.Clone(good)
		change(meta)
		goldentest.NoError(t, safetensors.WriteFile(filepath.Join(dir, record.PromptsFile), tensor.Map{}, meta))
		r, err := readRun(dir)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if err == nil && (!slices.Equal(r.backbones, []string{"x", "y"}) || len(r.digests) != 2 ||
			len(r.owned[0]) != 1) {
			t.Errorf("%+v", r)
		}
	}
	dir := t.TempDir()
	if _, err := readRun(dir); err == nil || !strings.HasSuffix(err.Error(),
		dir+" must be the folder of a finished run") {
		t.Error(err)
	}
}

// An exported file takes images of as many pixels as a run, 64 Mi: a larger one is refused by its header.
func TestLargeImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.png")
	for height, want := range map[int]string{8192: "damaged png", 8193: "8192 x 8193 pixels, the limit is 67108864"} {
		large := image.NewPaletted(image.Rect(0, 0, 8192, height), color.Palette{color.Black, color.White})
		var file bytes.Buffer
		goldentest.NoError(t, png.Encode(&file, large))
		filetest.Write(t, path, file.Bytes()[:64])
		_, err := new(File).Predict(t.Context(), []data.Example{{Path: path}})
		goldentest.WantError(t, err, "large.png", want)
	}
}
