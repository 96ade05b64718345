package parquetfile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"promptfed/federation/data/datatest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/oneline"
)

// TestParquetGuard: damage that would make the library allocate without limit is detected first. What just fits is
// allowed. The bytes follow the specifications of the Thrift compact protocol and of Parquet's encodings.
func TestParquetGuard(t *testing.T) {
	long := binary.AppendUvarint([]byte{0x29, 0xfc}, 1<<30) // field 2 a list (9) of structs (c) of 2^30 elements
	var deep []byte
	for range 40 {
		deep = append(deep, 0x1c) // field 1 a struct
	}
	zeros := make([]byte, 1<<20)
	var gz, zs bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(zeros)
	w.Close()
	z, err := zstd.NewWriter(&zs)
	goldentest.NoError(t, err)
	z.Write(zeros)
	z.Close()
	run := binary.AppendUvarint(nil, 1<<31) // a run of 2^30 values
	page := func(enc format.Encoding, n int32) *format.PageHeader {
		h := &format.PageHeader{Type: format.DataPage}
		h.DataPageHeader.Valid = true
		h.DataPageHeader.V = format.DataPageHeader{NumValues: n, Encoding: enc, DefinitionLevelEncoding: format.RLE}
		return h
	}
	check := func(h *format.PageHeader, levels int, body []byte) error {
		h.UncompressedPageSize = int32(len(body))
		return checkPage(h, format.Uncompressed, levels, body)
	}
	short := &format.PageHeader{Type: format.DataPageV2, UncompressedPageSize: 3}
	short.DataPageHeaderV2.V.DefinitionLevelsByteLength = 2
	footer := write(t, t.TempDir(), rowsOf(3)).File.Metadata()
	withRows := func(first, second int64) error {
		footer.RowGroups[0].NumRows, footer.RowGroups[1].NumRows = first, second
		raw, err := thrift.Marshal(new(thrift.CompactProtocol), footer)
		size := binary.LittleEndian.AppendUint32(nil, uint32(len(raw)))
		return errors.Join(err, readError(slices.Concat([]byte("PAR1"), zeros, raw, size, []byte("PAR1"))))
	}
	dict := func(n int32) *format.PageHeader {
		h := &format.PageHeader{Type: format.DictionaryPage}
		h.DictionaryPageHeader.Valid, h.DictionaryPageHeader.V.NumValues = true, n
		return h
	}
	mostItems := binary.AppendUvarint([]byte{0x19, 0xf3}, 2<<20) // field 1 a list of 2^21 bytes (3)
	mostItems = append(mostItems, make([]byte, 2<<20+1)...)
	// Fields 1 to 3 are numbers, 0 ends a header. This one ends a byte behind its column.
	_, _, cutErr := headerAt(bytes.NewReader([]byte{0x15, 0, 0x15, 0, 0x15, 0, 0}), 0, 6)
	_, gzErr := unpack(format.Gzip, gz.Bytes(), 1000)
	_, zsErr := unpack(format.Zstd, zs.Bytes(), 1000)
	_, snErr := unpack(format.Snappy, snappy.Encode(nil, zeros), 1000)
	_, loErr := unpack(format.Uncompressed, zeros, 1<<20+1)
	for name, c := range map[string]struct {
		err   error
		words []string // nil: allowed
	}{
		"long list":          {checkFooter(append(long, 0)), []string{"1073741824 elements"}},
		"list up to the end": {checkFooter([]byte{0x19, 0x23, 0, 0}), []string{"EOF"}},
		"most items":         {checkFooter(mostItems), nil},
		"nested":             {checkFooter(deep), []string{"deep"}},
		"map":                {checkFooter([]byte{0x1b, 0}), []string{"field of type 11"}},
		"header beyond":      {cutErr, []string{"ends early"}},
		"gzip":               {gzErr, []string{"1001", "1000"}},
		"zstd":               {zsErr, []string{"1001", "1000"}},
		"snappy":             {snErr, []string{"1048576", "1000"}},
		"short":              {loErr, []string{"1048576", "1048577"}},
		"dictionary":         {check(dict(1<<30), 0, []byte{0}), []string{"dictionary of 1073741824 values"}},
		"full dictionary":    {check(dict(1), 0, []byte{0}), nil},
		"no indices":         {check(page(format.RLEDictionary, 3), 0, nil), nil},
		"one long run":       {checkRuns(append(binary.AppendUvarint(nil, 2048<<1), 0), 8, 2048), nil},
		"indices": {check(page(format.RLEDictionary, 3), 0, append(append([]byte{1}, run...), 0)),
			[]string{"runs of 1073741824", "page of 3"}},
		"rows":         {check(page(format.Plain, 1<<24+1), 0, nil), []string{"16777217 rows"}},
		"wide indices": {check(page(format.RLEDictionary, 3), 0, []byte{33}), []string{"33 bits"}},
		"levels": {check(page(format.Plain, 3), 1, append(binary.LittleEndian.AppendUint32(nil,
			uint32(len(run)+1)), append(run, 0)...)), []string{"runs of 1073741824"}},
		"levels beyond":              {check(page(format.Plain, 3), 1, []byte{9, 0, 0, 0, 1}), []string{"ends early"}},
		"levels of version 2 beyond": {checkPage(short, format.Uncompressed, 1, []byte{0}), []string{"ends early"}},
		"packed beyond":              {checkRuns([]byte{0x81, 0x01, 0}, 8, 1<<30), []string{"ends early"}},
		"delta": {check(page(format.DeltaBinaryPacked, 3), 0, append([]byte{128, 1, 4},
			binary.AppendUvarint(nil, 1<<30)...)), []string{"1073741824 values", "page of 3"}},
		"other encoding":   {check(page(format.DeltaByteArray, 3), 0, []byte{0}), []string{"DELTA_BYTE_ARRAY"}},
		"no rows":          {withRows(0, 0), nil},
		"many rows":        {withRows(1<<40, 0), []string{"row group 0 of 1099511627776 rows"}},
		"many rows in all": {withRows(1<<20, 1<<20), []string{"row group 1 of 1048576 rows"}}, // the file has 1 MiB
		"small file":       {readError([]byte("PAR1")), []string{"too short"}},
		"footer too large": {readError([]byte("PAR1....\xff\xff\xff\x7fPAR1")), []string{"footer of 2147483647"}},
	} {
		if c.words != nil {
			goldentest.WantErrorOf(t, name, c.err, c.words...)
		} else if c.err != nil {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// A sound file in a form that is not read here is not called damaged.
func TestOtherCompression(t *testing.T) {
	chunk, err := write(t, t.TempDir(), rowsOf(2), parquet.Compression(&parquet.Brotli)).chunk(0, 0)
	goldentest.NoError(t, err)
	if _, _, err = chunk.read(chunk.pages[0]); err == nil || strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
}

func readError(raw []byte) error {
	_, err := readParquet(bytes.NewReader(raw), int64(len(raw)))
	return err
}

// FuzzParquet opens any bytes as a file and reads every column and image: it must return errors, without panics and
// with limited memory.
func FuzzParquet(f *testing.F) {
	for _, name := range []string{"none", "zstd", "gzip", "snappy", "pages", "v2", "words", "numbers", "delta"} {
		f.Add(filetest.Read(f, datatest.Testdata(f, "parquet", name+".parquet")))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<16 {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := readAll(raw); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<30 {
			t.Errorf("%d bytes allocated for a file of %d", n, len(raw))
		}
	})
}

func readAll(raw []byte) error {
	file := &File{path: "x.parquet", size: int64(len(raw)), r: bytes.NewReader(raw)}
	var err error
	if file.File, err = readParquet(file.r, file.size); err != nil {
		return oneline.Error(err)
	}
	c, _, err := file.FindColumns()
	if err != nil {
		return err
	}
	if _, err := file.Values(c.Label); err != nil {
		return err
	}
	if c.Domain != nil {
		if _, err := file.Values(c.Domain); err != nil {
			return err
		}
	}
	x := NewImagePages()
	for g, group := range file.File.RowGroups() {
		for row := range group.NumRows() {
			if _, err := x.Bytes(ChunkID{file, g, c.Image.Index()}, row); err != nil && !strings.Contains(err.Error(),
				"no image bytes") {
				return err
			}
		}
	}
	return nil
}

// FuzzParquetNames reads any text as the header of README.md and as dataset_infos.json.
func FuzzParquetNames(f *testing.F) {
	f.Add([]byte("---\ndataset_info:\n- features:\n  - name: label\n    dtype:\n      class_label:\n        names:\n " +
		"         '0': a\n---\n"))
	f.Add([]byte(`{"default": {"features": {"label": {"names": ["a"], "_type": "ClassLabel"}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, read := range []func([]byte) (map[string]map[string]Feature, error){readmeFeatures,
			infoFeatures} {
			if got, err := read(raw); err != nil && got != nil {
				t.Errorf("%v beside %v", got, err)
			}
		}
	})
}
