package converted

import (
	"path/filepath"
	"testing"

	"promptfed/models/bundle"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// FuzzManifest: no bundle.json makes the reader panic or take long, and an accepted one is accepted again after it was
// written.
func FuzzManifest(f *testing.F) {
	b, err := Convert("testdata/huggingface", filepath.Join(f.TempDir(), "small"), Options{})
	if err != nil {
		f.Fatal(err)
	}
	data := filetest.Read(f, filepath.Join(b.WeightsDir(), bundle.ManifestFile))
	if _, err := parseManifest(data); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	r, err := Convert("testdata/resnet/openai.pt", filepath.Join(f.TempDir(), "resnet"),
		Options{Vocab: "testdata/merges.txt"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(filetest.Read(f, r.WeightsDir(), bundle.ManifestFile))
	f.Add([]byte(`{"bundle":3}`))
	f.Add([]byte(`{"bundle":3,"name":"x","text":{"width":1048576,"layers":1048576,"heads":1,` +
		`"context":9,"embed_dim":3},"weights":{}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil {
			return
		}
		again := goldentest.JSON(t, m)
		if _, err := parseManifest(again); err != nil {
			t.Fatalf("accepted, but not once written: %v", err)
		}
		if b, err := newBundle(t.TempDir(), m); err == nil {
			b.Digest()
		}
	})
}

// FuzzReportONNX: no file makes the report of an ONNX model panic.
func FuzzReportONNX(f *testing.F) {
	b, err := Convert("testdata/huggingface", filepath.Join(f.TempDir(), "small"), Options{})
	if err != nil {
		f.Fatal(err)
	}
	data := filetest.Read(f, filepath.Join(b.WeightsDir(), TextFile))
	if r, err := bundle.Inspect(filepath.Join(b.WeightsDir(), TextFile)); err != nil || len(r.Inputs) != 2 {
		f.Fatal(r.Inputs, err)
	}
	f.Add(data[:len(data)/2])
	f.Add([]byte{})
	f.Add([]byte{0x3a, 0})
	path := filepath.Join(b.WeightsDir(), "fuzzed.onnx")
	f.Fuzz(func(t *testing.T, data []byte) {
		filetest.Write(t, path, data)
		_, _ = bundle.Inspect(path)
	})
}
