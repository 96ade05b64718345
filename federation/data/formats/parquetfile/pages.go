package parquetfile

import (
	"fmt"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"

	"promptfed/runtime/oneline"
)

// ImagePages reads image files out of Parquet files, page by page, and caches the most recently used pages.
type ImagePages struct {
	mu       sync.Mutex
	MaxBytes int64 // bytes
	chunks   map[ChunkID]*pqChunk
	Cached   []cachedPage // the most recently used one last
	Reads    int          // pages read, for tests
}

// ChunkID names a column chunk: the numbers of a row group and of a leaf column in an open file, both from 0.
type ChunkID struct {
	File          *File
	Group, Column int
}

type cachedPage struct {
	ChunkID
	page   pqPage
	values []parquet.Value
	Size   int64
}

// DefaultCacheBytes is the default of MaxBytes. The page in use is kept whatever its size.
const DefaultCacheBytes = 128 << 20

// NewImagePages returns an empty cache with the limit DefaultCacheBytes.
func NewImagePages() *ImagePages {
	return &ImagePages{MaxBytes: DefaultCacheBytes, chunks: map[ChunkID]*pqChunk{}}
}

// Bytes returns the image file in a row of a column chunk.
func (x *ImagePages) Bytes(w ChunkID, row int64) ([]byte, error) {
	v, err := x.value(w, row)
	if err != nil {
		return nil, oneline.Error(err)
	}

	if v.IsNull() || len(v.ByteArray()) == 0 {
		return nil, fmt.Errorf("the row holds no image bytes")
	}

	return v.ByteArray(), nil
}

func (x *ImagePages) value(id ChunkID, row int64) (parquet.Value, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, k := range x.Cached {
		if k.ChunkID == id && row >= k.page.first && row < k.page.first+k.page.rows {
			x.Cached = append(slices.Delete(x.Cached, i, i+1), k)
			return k.values[row-k.page.first], nil
		}
	}

	chunk := x.chunks[id]
	if chunk == nil {
		var err error
		if chunk, err = id.File.Chunk(id.Group, id.Column); err != nil {
			return parquet.Value{}, err
		}
		x.chunks[id] = chunk
	}

	i := slices.IndexFunc(chunk.Pages, func(p pqPage) bool { return row < p.first+p.rows })
	if i < 0 {
		return parquet.Value{}, errParquetEnd
	}

	page := chunk.Pages[i]
	values, size, err := chunk.read(page)
	if err != nil {
		return parquet.Value{}, err
	}

	x.Reads++
	x.Cached = append(x.Cached, cachedPage{id, page, values, size})
	total := int64(0)
	for i, k := range slices.Backward(x.Cached) {
		if total += k.Size; total > x.MaxBytes && i < len(x.Cached)-1 {
			x.Cached = slices.Delete(x.Cached, 0, i+1)
			break
		}
	}

	return values[row-page.first], nil
}
