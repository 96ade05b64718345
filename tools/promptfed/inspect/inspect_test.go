package inspect

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/methodtest"
	"promptfed/models/bundle"
	"promptfed/models/checkpoint"
	"promptfed/models/tiny"
	"promptfed/models/tokenizer"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
)

// inspect describes in one line how a model treats texts, if the treatment is not that of the tokenizer.
func TestInspectShowsTexts(t *testing.T) {
	x := tokenizer.TextCleaning{Clean: tokenizer.Canonicalize, StripSep: true, Sep: "[SEP]"}
	for want, r := range map[string][]bundle.Report{
		"cleaned: canonicalize, token 0 for the separator [SEP]": {{Bundle: &bundle.Bundle{Texts: x}},
			{Arch: &checkpoint.Arch{Texts: checkpoint.Texts{TextCleaning: x}}}},
		"": {{Bundle: &bundle.Bundle{}}, {Arch: &checkpoint.Arch{}}},
	} {
		for _, r := range r {
			rows := inspectedOf(r, false).rows()
			i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == "texts" })
			if (i >= 0) != (want != "") || i >= 0 && rows[i][1] != want {
				t.Errorf("%v, want %q", rows, want)
			}
		}
	}
}

// The memory of a captured graph is what the second run of the same sizes takes, which makes the graph. The CPU stands
// in for a device, and numbers of this test for its free memory.
func TestMemoryOfACapturedGraph(t *testing.T) {
	b, err := bundle.Find(tiny.Names()[0])
	goldentest.NoError(t, err)
	m, err := stepModel(b, ort.CUDA)
	goldentest.NoError(t, err)
	o := ort.Options{WeightsDir: b.WeightsDir(), Provider: ort.CPU, Bind: true}
	s, err := ort.NewSession(m, o)
	goldentest.NoError(t, err)
	defer s.Close()
	graphs, free := 0, []int64{90e6, 12e6}
	ort.OnFixed = func(*onnx.ModelProto) { graphs++ }
	defer func() { ort.OnFixed = nil }()
	n, err := takenBySecondRun(t.Context(), s, m, func() (now int64) {
		now, free = free[0], free[1:]
		return now
	})
	if err != nil || n != 78e6 || graphs != 1 || len(free) != 0 {
		t.Errorf("%d bytes, %d graphs of fixed sizes, %v", n, graphs, err)
	}
	if n, err := capturedBytes(t.Context(), m, o); err != nil || n != 0 {
		t.Errorf("on the CPU %d bytes, %v", n, err)
	}
	row := placement{Graph: "step", Provider: ort.CUDA, Operators: map[string]int{"Add": 2}, Captured: 78e6}.row()
	if want := "2 operators, 78 MB for a captured graph of a batch of 32"; row[1] != want {
		t.Errorf("%q, want %q", row[1], want)
	}
}

// A GPU runs all of the towers of the program's bundles, in batches of 32 images.
func TestNothingIsLeftToTheCPU(t *testing.T) {
	for _, name := range tiny.Names() {
		b, err := bundle.Find(name)
		goldentest.NoError(t, err)
		image, err := b.ImageModel()
		goldentest.NoError(t, err)
		step, err := stepModel(b, ort.CUDA)
		goldentest.NoError(t, err)
		for _, m := range []*onnx.ModelProto{image, step} {
			fixed, err := graph.FixSizes(m, someSizes(m))
			goldentest.NoError(t, err)
			if sizes, kernels := orttest.OffDevice(fixed); len(sizes)+len(kernels) > 0 {
				t.Errorf("%s: %q, %q", name, sizes, kernels)
			}
		}
	}
}

// check reads a method's file as a run does: its summands, or the fault in one line.
func TestCheckReadsMethods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	content, err := methodtest.ONNXFiles["scaffold"]()
	goldentest.NoError(t, err)
	for want, b := range map[string][]byte{
		"method with the loss cross entropy + correction": content,
		path + `: metadata promptfed.method: "invalid`: []byte(strings.Replace(string(content), `{"version`,
			`["version`, 1))} {
		filetest.Write(t, path, b)
		var c checks
		got := ""
		if err := c.all(t.Context(), path, nil, nil); err != nil {
			got = err.Error()
		} else {
			got = c.Checks[0].What
		}
		if !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestTextIsPrintable(t *testing.T) {
	i := inspected{Report: bundle.Report{Format: "by \x1b", Metadata: map[string]string{"a\n": "\x1b]0;b\a"}}}
	if text := i.text(); strings.ContainsAny(text, "\x1b\a") || strings.Count(text, "\n") != 4 {
		t.Errorf("%q", text)
	}
}
