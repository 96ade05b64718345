package parquetfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"os"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"promptfed/runtime/oneline"
)

// File is an open Parquet file whose pages are read one by one. It is safe for concurrent use.
type File struct {
	path string
	size int64
	Info fs.FileInfo
	r    io.ReaderAt
	File *parquet.File
}

// reopened is a file that is opened anew for every read, since a set may have more files than a process may hold open.
type reopened string

func (r reopened) ReadAt(p []byte, off int64) (int, error) {
	f, err := os.Open(string(r))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(p, off)
}

// guard turns a panic of the Parquet library on a damaged file into an error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the file is damaged: %.200v", p)
	}
}

// Open reads the footer of a Parquet file. It opens the file again for each read, so there is nothing to close. An
// error of a damaged file names the file.
func Open(path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	f := &File{path: path, size: st.Size(), Info: st, r: reopened(path)}
	if f.File, err = readParquet(f.r, f.size); err != nil {
		return nil, fmt.Errorf("%s: %w", path, oneline.Error(err))
	}

	return f, nil
}

// readParquet checks the footer of a file and opens the file.
func readParquet(file io.ReaderAt, size int64) (parsed *parquet.File, err error) {
	defer guard(&err)
	var tail [8]byte
	if size < 12 {
		return nil, errors.New("is not a Parquet file: it is too short")
	}

	if _, err := file.ReadAt(tail[:], size-8); err != nil {
		return nil, err
	}

	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	switch {
	case string(tail[4:]) != "PAR1":
		return nil, errors.New("is not a Parquet file, or not complete: it does not end in PAR1")
	case n > size-12 || n > pqMaxFooter:
		return nil, fmt.Errorf("the file is damaged: a footer of %d bytes", n)
	}

	footer := make([]byte, n)
	if _, err := file.ReadAt(footer, size-8-n); err != nil {
		return nil, err
	}

	if err := checkFooter(footer); err != nil {
		return nil, fmt.Errorf("the file is damaged: %w", err)
	}

	parsed, err = parquet.OpenFile(file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}

	rows := int64(0)
	for i, g := range parsed.RowGroups() {
		n := g.NumRows()
		if n < 0 || n > size-rows { // an image has at least one byte
			return nil, fmt.Errorf("the file is damaged: row group %d of %d rows in %d bytes", i, n, size)
		}
		rows += n
	}

	return parsed, nil
}

// pqPage is the position of a page in a column chunk, and the rows of the page.
type pqPage struct {
	offset, length int64 // including its header
	first, rows    int64
}

// pqChunk is one column of one row group.
type pqChunk struct {
	file  *File
	chunk *parquet.FileColumnChunk
	meta  *format.ColumnMetaData
	// levels is the number of bits of a definition level.
	levels int
	dict   pqPage // length 0: no dictionary
	pages  []pqPage
}

// chunk finds the pages of a column chunk by reading their headers.
func (f *File) chunk(group, column int) (out *pqChunk, err error) {
	defer guard(&err)
	rowGroup := f.File.RowGroups()[group]
	chunk, ok := rowGroup.ColumnChunks()[column].(*parquet.FileColumnChunk)
	if !ok {
		return nil, errors.New("the file is damaged: a column is missing")
	}

	meta := &f.File.Metadata().RowGroups[group].Columns[column].MetaData
	node, ok := chunk.Node().(*parquet.Column)
	if !ok || node.MaxRepetitionLevel() > 0 {
		return nil, errors.New("a column holds lists")
	}

	out = &pqChunk{file: f, chunk: chunk, meta: meta, levels: bits.Len(uint(node.MaxDefinitionLevel()))}
	end := out.base() + meta.TotalCompressedSize
	if out.base() < 4 || meta.TotalCompressedSize < 0 || end > f.size || end < out.base() {
		return nil, fmt.Errorf("the file is damaged: a column at byte %d to %d of %d", out.base(), end, f.size)
	}

	rows := int64(0)
	for at := out.base(); rows < rowGroup.NumRows(); {
		header, n, err := headerAt(f.r, at, end)
		if err != nil {
			return nil, err
		}

		page := pqPage{offset: at, length: int64(n) + int64(header.CompressedPageSize), first: rows}
		if page.length > end-at {
			return nil, errParquetEnd
		}

		at += page.length
		switch header.Type {
		case format.DictionaryPage:
			if out.dict.length > 0 || len(out.pages) > 0 {
				return nil, errors.New("the file is damaged: a dictionary is not the first page")
			}
			out.dict = page
			continue
		case format.DataPage:
			page.rows = int64(header.DataPageHeader.V.NumValues)
		case format.DataPageV2:
			page.rows = int64(header.DataPageHeaderV2.V.NumValues)
		default:
			continue
		}

		if page.rows < 0 || page.rows > rowGroup.NumRows()-rows {
			return nil, fmt.Errorf("the file is damaged: a page of %d rows where %d are left", page.rows,
				rowGroup.NumRows()-rows)
		}

		rows += page.rows
		out.pages = append(out.pages, page)
	}

	return out, nil
}

// base returns the offset of the column chunk, computed as the library computes it.
func (c *pqChunk) base() int64 {
	return cmp.Or(c.meta.DictionaryPageOffset, c.meta.DataPageOffset)
}

// headerAt reads the page header at an offset of a file, in a window that grows while it is too short.
func headerAt(r io.ReaderAt, at, end int64) (*format.PageHeader, int, error) {
	for window := int64(1 << 10); ; window *= 8 {
		b := make([]byte, min(window, end-at))
		if _, err := r.ReadAt(b, at); err != nil && err != io.EOF {
			return nil, 0, err
		}
		h, n, err := readPageHeader(b)
		if err == errParquetEnd && int64(len(b)) < end-at && window < pqMaxHeader {
			continue
		}
		return h, n, err
	}
}

// shifted is a part of a file that is read by offsets in the whole file.
type shifted struct {
	*bytes.Reader
	base int64
}

func (s shifted) ReadAt(p []byte, off int64) (int, error) { return s.Reader.ReadAt(p, off-s.base) }

// read returns the values of a page, including nulls, and about how many bytes they occupy. The values point into
// memory that is not reused.
func (c *pqChunk) read(place pqPage) (values []parquet.Value, size int64, err error) {
	defer guard(&err)
	buf := make([]byte, 0, c.dict.length+place.length)
	for _, part := range []pqPage{c.dict, place} {
		if part.length == 0 {
			continue
		}

		raw := buf[len(buf) : len(buf)+int(part.length)]
		if _, err := c.file.r.ReadAt(raw, part.offset); err != nil {
			return nil, 0, err
		}

		h, n, err := readPageHeader(raw)
		if err != nil {
			return nil, 0, err
		}

		if err := checkPage(h, c.meta.Codec, c.levels, raw[n:]); errors.As(err, new(unsupported)) {
			return nil, 0, err
		} else if err != nil {
			return nil, 0, fmt.Errorf("the file is damaged: %w", err)
		}

		size += int64(h.UncompressedPageSize)
		buf = buf[:len(buf)+len(raw)]
	}

	pages := c.chunk.PagesFrom(shifted{bytes.NewReader(buf), c.base()})
	defer pages.Close()
	page, err := pages.ReadPage()
	if err != nil {
		return nil, 0, err
	}

	values = make([]parquet.Value, place.rows)
	n, err := page.Values().ReadValues(values)
	if err != nil && err != io.EOF {
		return nil, 0, err
	}

	if int64(n) != place.rows {
		return nil, 0, fmt.Errorf("the file is damaged: a page of %d rows has %d values", place.rows, n)
	}

	return values, size, nil
}
