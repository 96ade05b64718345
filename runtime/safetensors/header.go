package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
)

const (
	metadataKey = "__metadata__"
	maxHeader   = 100_000_000 // bytes; the limit of the reference implementation
	maxRank     = 64
	maxName     = 512     // bytes of a tensor's name, to quote it in one line; published ones have fewer than 100
	maxEntry    = 1 << 16 // bytes of JSON of one tensor
)

// entry is one tensor of a header; begin and end are absolute byte offsets in the file.
type entry struct {
	dtype      string
	shape      []int
	begin, end int64
}

// readHeader reads and checks the header of a file of size bytes: the tensors cover the bytes from the end of the
// header to the end of the file, without gap or overlap, and each has the length of its dtype and shape.
func readHeader(source io.ReaderAt, size int64) (map[string]entry, map[string]string, error) {
	var prefix [8]byte
	if size < 8 {
		return nil, nil, fmt.Errorf("%d bytes is too short for the 8-byte header length; the file is truncated or "+
			"not safetensors", size)
	}

	if err := readFull(source, prefix[:], 0); err != nil {
		return nil, nil, err
	}

	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeader {
		return nil, nil, fmt.Errorf("header length %d is above the limit of %d; not a safetensors file", length,
			maxHeader)
	}

	if int64(length) > size-8 {
		return nil, nil, fmt.Errorf("header length %d runs past the end of the file of %d bytes; the file is "+
			"truncated", length, size)
	}

	var first [1]byte
	if length > 0 {
		if err := readFull(source, first[:], 8); err != nil {
			return nil, nil, err
		}
	}

	if first[0] != '{' {
		return nil, nil, errors.New("header does not start with '{'; not a safetensors file")
	}

	raw := make([]byte, length)
	if err := readFull(source, raw, 8); err != nil {
		return nil, nil, err
	}

	tensors, meta, err := parseHeader(raw)
	if err != nil {
		return nil, nil, err
	}

	if err := place(tensors, 8+int64(length), size); err != nil {
		return nil, nil, err
	}

	return tensors, meta, nil
}

// byteSize returns the product of shape and unit. A negative dimension or a product above 2^62 is an error, even if
// another dimension is 0.
func byteSize(shape []int64, unit int) (int64, error) {
	if len(shape) > maxRank {
		return 0, fmt.Errorf("rank %d is above %d", len(shape), maxRank)
	}

	size, empty := uint64(unit), false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(size, uint64(d))
		if hi != 0 || lo > 1<<62 {
			return 0, fmt.Errorf("the size of shape %v overflows", shape)
		}
		size = lo
	}

	if empty {
		return 0, nil
	}

	return int64(size), nil
}

// place makes offsets absolute and checks that the tensors cover the data exactly.
func place(tensors map[string]entry, base, size int64) error {
	names := slices.SortedFunc(maps.Keys(tensors), func(a, b string) int {
		x, y := tensors[a], tensors[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end), cmp.Compare(a, b))
	})

	at := int64(0)
	for _, name := range names {
		entry := tensors[name]
		switch {
		case entry.begin < at:
			return fmt.Errorf("tensor %q at data offset %d overlaps the tensor before it, which ends at %d", name,
				entry.begin, at)
		case entry.begin > at:
			return fmt.Errorf("data offsets %d to %d belong to no tensor", at, entry.begin)
		case entry.end > size-base:
			return fmt.Errorf("tensor %q ends at data offset %d, but the file holds %d data bytes; the file is "+
				"truncated", name, entry.end, size-base)
		}

		at = entry.end
		entry.begin, entry.end = entry.begin+base, entry.end+base
		tensors[name] = entry
	}

	if at != size-base {
		return fmt.Errorf("%d bytes follow the last tensor", size-base-at)
	}

	return nil
}

func readFull(r io.ReaderAt, p []byte, at int64) error {
	n, err := r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}

	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}

	return fmt.Errorf("reading %d bytes at offset %d: %w", len(p), at, err)
}
