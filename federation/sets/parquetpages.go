package sets

import (
	"fmt"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"
)

// pqImagePages reads image files out of Parquet files, page by page, and keeps the pages that were used last.
type pqImagePages struct {
	mu     sync.Mutex
	keep   int64 // bytes
	chunks map[pqWhere]*pqChunk
	kept   []pqKept // the one used last at the end
	reads  int      // pages read, for tests
}

type pqWhere struct {
	file          *pqFile
	group, column int
}

type pqKept struct {
	pqWhere
	page   pqPage
	values []parquet.Value
	size   int64
}

// pqKeep is how many bytes of pages are kept; the page in use is kept whatever its size.
const pqKeep = 128 << 20

func newImagePages() *pqImagePages {
	return &pqImagePages{keep: pqKeep, chunks: map[pqWhere]*pqChunk{}}
}

// bytes is the image file in a row of a row group.
func (x *pqImagePages) bytes(w pqWhere, row int64) ([]byte, error) {
	v, err := x.value(w, row)
	if err != nil {
		return nil, oneLine(err)
	}
	if v.IsNull() || len(v.ByteArray()) == 0 {
		return nil, fmt.Errorf("the row holds no image bytes")
	}
	return v.ByteArray(), nil
}

func (x *pqImagePages) value(w pqWhere, row int64) (parquet.Value, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, k := range x.kept {
		if k.pqWhere == w && row >= k.page.first && row < k.page.first+k.page.rows {
			x.kept = append(slices.Delete(x.kept, i, i+1), k)
			return k.values[row-k.page.first], nil
		}
	}
	chunk := x.chunks[w]
	if chunk == nil {
		var err error
		if chunk, err = w.file.chunk(w.group, w.column); err != nil {
			return parquet.Value{}, err
		}
		x.chunks[w] = chunk
	}
	i, _ := slices.BinarySearchFunc(chunk.pages, row, func(p pqPage, row int64) int {
		switch {
		case p.first+p.rows <= row:
			return -1
		case p.first > row:
			return 1
		}
		return 0
	})
	if i >= len(chunk.pages) {
		return parquet.Value{}, errParquetEnd
	}
	page := chunk.pages[i]
	values, size, err := chunk.read(page)
	if err != nil {
		return parquet.Value{}, err
	}
	x.reads++
	x.kept = append(x.kept, pqKept{w, page, values, size})
	total := int64(0)
	for i, k := range slices.Backward(x.kept) {
		if total += k.size; total > x.keep && i < len(x.kept)-1 {
			x.kept = slices.Delete(x.kept, 0, i+1)
			break
		}
	}
	return values[row-page.first], nil
}
