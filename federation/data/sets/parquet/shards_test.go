package parquet

import (
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/sets/source"
	"promptfed/runtime/goldentest"
)

// A split with a missing or repeated part is refused.
func TestShards(t *testing.T) {
	files := map[string]string{"data/train-00000-of-00002.parquet": "snappy.parquet",
		"data/test-00000-of-00001-0a1b.parquet": "zstd.parquet"}
	root := put(t, files)
	_, err := openSet(source.Config{Set: "parquet", Root: root})
	goldentest.WantError(t, err, filepath.Join(root, "data", "train-00001-of-00002.parquet"), "is missing",
		"data.corrupt: skip")
	s := mustOpen(t, source.Config{Set: "parquet", Root: root, Corrupt: data.Skip})
	if len(s.Train) != 7 || len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Reason, "train-00001-of-00002") {
		t.Errorf("%d training images, %v", len(s.Train), s.Skipped)
	}
	files["data/train-00001-of-00002.parquet"] = "gzip.parquet"
	if s = mustOpen(t, source.Config{Set: "parquet", Root: put(t, files)}); len(s.Train) != 14 {
		t.Errorf("%d training images of two parts", len(s.Train))
	}
	files["data/test-00000-of-00001-9f.parquet"] = "zstd.parquet"
	_, err = openSet(source.Config{Set: "parquet", Root: put(t, files)})
	goldentest.WantError(t, err, "test-00000-of-00001-0a1b.parquet", "test-00000-of-00001-9f.parquet",
		"both part 0 of 1")
}
