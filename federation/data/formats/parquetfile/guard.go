package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// parquet-go takes sizes and counts from the file without checks and allocates accordingly: a damaged file of a few
// bytes can ask for more memory than there is, which no recover can catch. The checks below run before parquet-go reads
// the data.
const (
	pqMaxFooter = 64 << 20
	pqMaxItems  = 2 << 20 // elements of all lists in a footer
	pqMaxPage   = 512 << 20
	pqMaxRows   = 16 << 20 // of a page, each 24 bytes in memory
	pqMaxHeader = 1 << 20
	pqMaxDepth  = 32
)

var errParquetEnd = errors.New("the file is damaged: it ends early")

// checkFooter walks a footer, which is encoded in Thrift's compact protocol, and checks that its lists are as long as
// they claim.
func checkFooter(footer []byte) error {
	var p thrift.CompactProtocol
	reader := p.NewReaderFromBytes(footer)
	items := 0
	var value func(t thrift.Type, inList bool, depth int) error

	list := func(t thrift.Type, size int32, depth int) error {
		items += int(size)
		if size < 0 || int(size) > len(footer)-reader.BytesRead() || items > pqMaxItems {
			return fmt.Errorf("the footer has a list of %d elements", size)
		}
		for range size {
			if err := value(t, true, depth+1); err != nil {
				return err
			}
		}
		return nil
	}

	value = func(kind thrift.Type, inList bool, depth int) error {
		if depth > pqMaxDepth {
			return errors.New("the footer is nested too deeply")
		}

		var err error
		switch kind {
		case thrift.TRUE, thrift.FALSE:
			if inList { // elsewhere the type contains the value
				_, err = reader.ReadInt8()
			}
		case thrift.I8:
			_, err = reader.ReadInt8()
		case thrift.I16, thrift.I32, thrift.I64:
			_, err = reader.ReadInt64()
		case thrift.DOUBLE:
			_, err = reader.ReadFloat64()
		case thrift.BINARY:
			_, err = reader.ReadBytes()
		case thrift.LIST, thrift.SET:
			var l thrift.List
			if l, err = reader.ReadList(); err == nil {
				err = list(l.Type, l.Size, depth)
			}
		case thrift.STRUCT:
			for err == nil {
				var f thrift.Field
				if f, err = reader.ReadField(); err != nil || f.Type == thrift.STOP {
					break
				}
				err = value(f.Type, false, depth+1)
			}
		default: // Parquet's footers have no maps and no UUIDs
			return fmt.Errorf("the footer has a field of type %d", kind)
		}

		return err
	}

	return value(thrift.STRUCT, false, 0)
}

// readPageHeader returns the page header at the start of b, and its length. errParquetEnd means that b is too short.
func readPageHeader(b []byte) (*format.PageHeader, int, error) {
	var p thrift.CompactProtocol
	reader := p.NewReaderFromBytes(b)
	header := new(format.PageHeader)
	if err := thrift.NewDecoder(reader).Decode(header); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, errParquetEnd
		}
		return nil, 0, fmt.Errorf("page header: %w", err)
	}

	if header.CompressedPageSize < 0 || header.CompressedPageSize > pqMaxPage || header.UncompressedPageSize < 0 ||
		header.UncompressedPageSize > pqMaxPage {
		return nil, 0, fmt.Errorf("page of %d bytes, %d unpacked: expected at most %d", header.CompressedPageSize,
			header.UncompressedPageSize, pqMaxPage)
	}

	return header, reader.BytesRead(), nil
}

// unsupported is the error of a sound file whose form is not read here.
type unsupported struct{ error }

// checkPage checks that the content of a page is as long as its header says, both after decompression and after the
// runs are expanded. levels is the number of bits of a definition level, 0 if no value may be missing.
func checkPage(header *format.PageHeader, codec format.CompressionCodec, levels int, raw []byte) error {
	unpacked := int(header.UncompressedPageSize)
	switch header.Type {
	case format.DictionaryPage:
		body, err := unpack(codec, raw, unpacked)
		if err != nil {
			return err
		}
		if n := header.DictionaryPageHeader.V.NumValues; !header.DictionaryPageHeader.Valid || n < 0 ||
			int(n) > len(body) {
			return fmt.Errorf("dictionary of %d values in %d bytes", n, len(body))
		}
		return nil
	case format.DataPage:
		page := header.DataPageHeader.V
		body, err := unpack(codec, raw, unpacked)
		if err != nil {
			return err
		}
		if levels > 0 {
			if len(body) < 4 {
				return errParquetEnd
			}

			length := binary.LittleEndian.Uint32(body)
			body = body[4:]
			if int64(length) > int64(len(body)) {
				return errParquetEnd
			}

			if page.DefinitionLevelEncoding != format.RLE {
				return unsupported{fmt.Errorf("levels in encoding %v are not supported: write the file with a newer "+
					"library", page.DefinitionLevelEncoding)}
			}

			if err := checkRuns(body[:length], levels, int(page.NumValues)); err != nil {
				return err
			}

			body = body[length:]
		}
		return checkValues(page.Encoding, body, int(page.NumValues))
	case format.DataPageV2:
		page := header.DataPageHeaderV2.V
		rep, def := int(page.RepetitionLevelsByteLength), int(page.DefinitionLevelsByteLength)
		if rep < 0 || def < 0 || rep+def > len(raw) || rep+def > unpacked || page.NumNulls < 0 ||
			page.NumNulls > page.NumValues {
			return errParquetEnd
		}
		if err := checkRuns(raw[rep:rep+def], levels, int(page.NumValues)); err != nil {
			return err
		}
		body := raw[rep+def:]
		if !page.IsCompressed.Valid || page.IsCompressed.V {
			var err error
			if body, err = unpack(codec, body, unpacked-rep-def); err != nil {
				return err
			}
		}
		return checkValues(page.Encoding, body, int(page.NumValues))
	}

	return fmt.Errorf("page of type %v", header.Type)
}

// unpack returns the content of a compressed page, which must have size bytes.
func unpack(codec format.CompressionCodec, raw []byte, size int) ([]byte, error) {
	if size < 0 || size > pqMaxPage {
		return nil, errParquetEnd
	}

	var r io.Reader
	var err error
	switch codec {
	case format.Uncompressed:
		r = bytes.NewReader(raw)
	case format.Snappy:
		n, err := snappy.DecodedLen(raw)
		if err != nil || n != size {
			return nil, fmt.Errorf("snappy page of %d bytes where its header says %d", n, size)
		}
		return snappy.Decode(nil, raw)
	case format.Gzip:
		r, err = gzip.NewReader(bytes.NewReader(raw))
	case format.Zstd:
		var d *zstd.Decoder
		d, err = zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(pqMaxPage), zstd.WithDecoderLowmem(true))
		if err == nil {
			defer d.Close()
			r = d
		}
	default:
		return nil, unsupported{fmt.Errorf("compression %v is not supported: write the file with snappy, gzip, zstd "+
			"or none", codec)}
	}

	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, int64(size)+1))
	if err == nil && n != int64(size) {
		err = fmt.Errorf("page of %d bytes or more where its header says %d", n, size)
	}

	return out.Bytes(), err
}

// pqSlack is how many values more than a page has its runs may hold: groups are of eight and more.
const pqSlack = 1024

// pqPlainDictionary is the name of RLEDictionary in older writers.
const pqPlainDictionary = format.Encoding(2)

// checkValues limits the values of a page, and counts those of encodings that can claim more than the page has bytes.
func checkValues(encoding format.Encoding, body []byte, n int) error {
	if n > pqMaxRows {
		return fmt.Errorf("page of %d rows: expected at most %d", n, pqMaxRows)
	}

	switch encoding {
	case format.Plain:
		return nil
	case pqPlainDictionary, format.RLEDictionary:
		if len(body) == 0 {
			return nil
		}
		if body[0] > 32 {
			return fmt.Errorf("indices of %d bits", body[0])
		}
		return checkRuns(body[1:], int(body[0]), n)
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray:
		var head [3]uint64 // block size, blocks in it, values
		for i := range head {
			v, k := binary.Uvarint(body)
			if k <= 0 {
				return errParquetEnd
			}
			head[i], body = v, body[k:]
		}
		if head[2] > uint64(n) {
			return fmt.Errorf("%d values in a page of %d", head[2], n)
		}
		return nil
	}

	return unsupported{fmt.Errorf("encoding %v is not supported: write the file with plain or dictionary encoding",
		encoding)}
}

// checkRuns walks Parquet's hybrid of run lengths and packed bits and checks that it holds at most n values.
func checkRuns(raw []byte, bits, n int) error {
	total := uint64(0)
	for len(raw) > 0 {
		head, k := binary.Uvarint(raw)
		if k <= 0 {
			return errParquetEnd
		}

		raw = raw[k:]
		count, size := head>>1, uint64(bits+7)/8
		if head&1 == 1 {
			if count > uint64(len(raw)) && bits > 0 {
				return errParquetEnd
			}
			count, size = 8*count, count*uint64(bits)
		}

		if total += count; count > uint64(n)+pqSlack || total > uint64(n)+pqSlack {
			return fmt.Errorf("runs of %d values in a page of %d", total, n)
		}

		if size > uint64(len(raw)) {
			return errParquetEnd
		}

		raw = raw[size:]
	}

	return nil
}
