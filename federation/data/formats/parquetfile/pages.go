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
	maxBytes int64
	chunks   map[ChunkID]*pqChunk
	cached   []cachedPage // the most recently used one last
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
	size   int64
}

// defaultCacheBytes is the default of maxBytes. The page in use is kept whatever its size.
const defaultCacheBytes = 128 << 20

// NewImagePages returns an empty cache with the limit defaultCacheBytes.
func NewImagePages() *ImagePages {
	return &ImagePages{maxBytes: defaultCacheBytes, chunks: map[ChunkID]*pqChunk{}}
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
	for i, k := range x.cached {
		if k.ChunkID == id && row >= k.page.first && row < k.page.first+k.page.rows {
			x.cached = append(slices.Delete(x.cached, i, i+1), k)
			return k.values[row-k.page.first], nil
		}
	}

	chunk := x.chunks[id]
	if chunk == nil {
		var err error
		if chunk, err = id.File.chunk(id.Group, id.Column); err != nil {
			return parquet.Value{}, err
		}
		x.chunks[id] = chunk
	}

	i := slices.IndexFunc(chunk.pages, func(p pqPage) bool { return row < p.first+p.rows })
	if i < 0 {
		return parquet.Value{}, errParquetEnd
	}

	page := chunk.pages[i]
	values, size, err := chunk.read(page)
	if err != nil {
		return parquet.Value{}, err
	}

	x.cached = append(x.cached, cachedPage{id, page, values, size})
	total := int64(0)
	for i, k := range slices.Backward(x.cached) {
		if total += k.size; total > x.maxBytes && i < len(x.cached)-1 {
			x.cached = slices.Delete(x.cached, 0, i+1)
			break
		}
	}

	return values[row-page.first], nil
}
