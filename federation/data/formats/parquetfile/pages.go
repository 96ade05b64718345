package parquetfile

import (
	"fmt"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"
)

// ImagePages reads image files out of Parquet files, page by page, and keeps the pages that were used last.
type ImagePages struct {
	mu     sync.Mutex
	Keep   int64 // bytes
	chunks map[Where]*pqChunk
	Kept   []pqKept // the one used last at the end
	Reads  int      // pages read, for tests
}

type Where struct {
	File          *File
	Group, Column int
}

type pqKept struct {
	Where
	page   pqPage
	values []parquet.Value
	Size   int64
}

// KeptBytes is how many bytes of pages are kept; the page in use is kept whatever its size.
const KeptBytes = 128 << 20

func NewImagePages() *ImagePages {
	return &ImagePages{Keep: KeptBytes, chunks: map[Where]*pqChunk{}}
}

// Bytes is the image file in a row of a row group.
func (x *ImagePages) Bytes(w Where, row int64) ([]byte, error) {
	v, err := x.value(w, row)
	if err != nil {
		return nil, oneLine(err)
	}
	if v.IsNull() || len(v.ByteArray()) == 0 {
		return nil, fmt.Errorf("the row holds no image bytes")
	}
	return v.ByteArray(), nil
}

func (x *ImagePages) value(w Where, row int64) (parquet.Value, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, k := range x.Kept {
		if k.Where == w && row >= k.page.first && row < k.page.first+k.page.rows {
			x.Kept = append(slices.Delete(x.Kept, i, i+1), k)
			return k.values[row-k.page.first], nil
		}
	}
	chunk := x.chunks[w]
	if chunk == nil {
		var err error
		if chunk, err = w.File.Chunk(w.Group, w.Column); err != nil {
			return parquet.Value{}, err
		}
		x.chunks[w] = chunk
	}
	i, _ := slices.BinarySearchFunc(chunk.Pages, row, func(p pqPage, row int64) int {
		switch {
		case p.first+p.rows <= row:
			return -1
		case p.first > row:
			return 1
		}
		return 0
	})
	if i >= len(chunk.Pages) {
		return parquet.Value{}, errParquetEnd
	}
	page := chunk.Pages[i]
	values, size, err := chunk.read(page)
	if err != nil {
		return parquet.Value{}, err
	}
	x.Reads++
	x.Kept = append(x.Kept, pqKept{w, page, values, size})
	total := int64(0)
	for i, k := range slices.Backward(x.Kept) {
		if total += k.Size; total > x.Keep && i < len(x.Kept)-1 {
			x.Kept = slices.Delete(x.Kept, 0, i+1)
			break
		}
	}
	return values[row-page.first], nil
}
