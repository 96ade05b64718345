package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/nlpodyssey/gopickle/types"

	"promptfed/runtime/unpickle"
)

// ReadPathsAndLabels reads the files (paths, labels) of FedBN's code, in the formats of numpy.save, numpy.load with
// allow_pickle and pickle.dump: a pair of lists or arrays, or one array with two rows.
func ReadPathsAndLabels(file io.ReaderAt, size int64) (paths []string, labels []any, err error) {
	first, second, err := ReadPair(file, size)
	if err != nil {
		return nil, nil, err
	}

	names, err := Values(file, first)
	if err != nil {
		return nil, nil, err
	}

	for _, n := range names {
		s, ok := n.(string)
		if !ok {
			return nil, nil, fmt.Errorf("%v where a path is expected", n)
		}
		paths = append(paths, s)
	}

	if labels, err = Values(file, second); err == nil && len(names) != len(labels) {
		err = fmt.Errorf("%d paths but %d labels", len(names), len(labels))
	}

	return paths, labels, err
}

// Numbers returns the whole numbers of a list or an array.
func Numbers(r io.ReaderAt, v any) ([]float64, error) {
	list, err := Values(r, v)
	out := make([]float64, len(list))
	for i, e := range list {
		n, ok := e.(int)
		if !ok {
			return nil, fmt.Errorf("label %d is %q: expected a number", i, e)
		}
		out[i] = float64(n)
	}

	return out, err
}

// ReadPair returns the two elements of a file's pair.
func ReadPair(file io.ReaderAt, size int64) (any, any, error) {
	value, err := npyOrPickle(file, size)
	if err != nil {
		return nil, nil, err
	}

	var list []any
	switch v := value.(type) {
	case *types.Tuple:
		list = *v
	case *types.List:
		list = *v
	case *Array:
		if len(v.Shape) == 2 && v.Shape[0] == 2 {
			return v.rows(file)
		}
		list = v.list
	}

	if len(list) != 2 {
		return nil, nil, fmt.Errorf("it holds %T: expected a pair of lists or numpy arrays", value)
	}

	return list[0], list[1], nil
}

// rows returns the two rows of an array.
func (a *Array) rows(r io.ReaderAt) (any, any, error) {
	all := a.list
	if a.Dtype.Letter != 'O' {
		var err error
		if all, err = a.values(r); err != nil {
			return nil, nil, err
		}
	}

	n := a.Shape[1]
	var out [2]types.List
	for i := range all {
		k := i / n
		if a.Fortran {
			k = i % 2
		}
		out[k] = append(out[k], all[i])
	}

	return &out[0], &out[1], nil
}

var npyHeader = regexp.MustCompile(`^\{'descr': '([<>|=])([iubfUSO]\d*)', ` +
	`'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \}\s*$`)

// npyOrPickle reads a file of numpy.save ("NEP 1") or a bare pickle.
func npyOrPickle(file io.ReaderAt, size int64) (any, error) {
	var head [12]byte
	if n, _ := file.ReadAt(head[:], 0); n < len(head) || string(head[:6]) != "\x93NUMPY" {
		return Read(file, 0, size)
	}

	at, length := int64(10), int64(binary.LittleEndian.Uint16(head[8:]))
	if head[6] > 1 {
		at, length = 12, int64(binary.LittleEndian.Uint32(head[8:]))
	}

	if length > 1<<12 {
		return nil, errors.New("the header of the numpy file is too long")
	}

	text := make([]byte, length)
	if _, err := file.ReadAt(text, at); err != nil {
		return nil, errors.New("the header of the numpy file is cut off: fetch it again")
	}

	match := npyHeader.FindStringSubmatch(string(text))
	if match == nil {
		return nil, fmt.Errorf("numpy file with header %q: expected numbers, strings or objects",
			strings.TrimSpace(string(text)))
	}

	at += length
	if match[2][0] == 'O' {
		return Read(file, at, size)
	}

	t, err := newNpType(match[2])
	if err != nil {
		return nil, err
	}

	dtype := t.(*DType)
	dtype.big = match[1] == ">"
	var dims types.Tuple
	for _, d := range strings.FieldsFunc(match[4], func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(d)
		if err != nil {
			return nil, err
		}
		dims = append(dims, n)
	}

	shape, err := pickleShape(&dims)
	if err != nil {
		return nil, err
	}

	return newNpArray(dtype, shape, unpickle.Outside{At: at, Length: size - at}, match[3] == "True")
}
