package parquetfile

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// TestParquetPages: pages are read once if images are read in order, by any goroutine, and no more bytes of pages are
// cached than allowed.
func TestParquetPages(t *testing.T) {
	rows := make([]labelled, 700) // of 1000 bytes, in pages of 64 rows
	for i := range rows {
		rows[i].Img.Bytes = bytes.Repeat([]byte{byte(i)}, 1000)
	}
	f := write(t, t.TempDir(), rows, parquet.MaxRowsPerRowGroup(700), parquet.PageBufferSize(8000))
	chunk, err := f.chunk(0, 0)
	if err != nil || len(chunk.pages) < 10 {
		t.Fatalf("only %d pages: the test needs more, %v", len(chunk.pages), err)
	}
	for _, keep := range []int64{defaultCacheBytes, 140_000} {
		x, reads := NewImagePages(), map[*parquet.Value]bool{}
		x.maxBytes = keep
		for row := range rows {
			if b, err := x.Bytes(ChunkID{File: f}, int64(row)); err != nil || !slices.Equal(b, rows[row].Img.Bytes) {
				t.Fatalf("row %d: %v", row, err)
			}
			last, held := len(x.cached)-1, int64(0)
			reads[&x.cached[last].values[0]] = true
			for _, k := range x.cached[:last] {
				held += k.size
			}
			if held > keep {
				t.Fatalf("%d bytes kept, %d allowed", held, keep)
			}
		}
		if len(reads) != len(chunk.pages) {
			t.Errorf("%d reads of %d pages", len(reads), len(chunk.pages))
		}
		var wait sync.WaitGroup
		for k := range 8 {
			wait.Go(func() {
				for i := range rows {
					row := (i*37 + k) % len(rows)
					if b, err := x.Bytes(ChunkID{File: f}, int64(row)); err != nil || b[0] != byte(row) {
						t.Errorf("row %d: %v", row, err)
						return
					}
				}
			})
		}
		wait.Wait()
	}
}
