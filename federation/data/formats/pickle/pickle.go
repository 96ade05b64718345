package pickle

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nlpodyssey/gopickle/pickle"
)

// Python pickles of data sets hold lists of names and numbers, and large strings of pixels. The reader passes the
// stream to gopickle's stack machine, which runs no code, and allows only the opcodes that such pickles need. Strings
// of pixels stay in the file; the machine sees only their positions.
const (
	pickleMax     = 8 << 20 // bytes without the strings that stay in the file; CIFAR-100 needs two million
	pickleBlob    = 1 << 12 // strings of at least this many bytes stay in the file
	pickleLine    = 256     // bytes of a global's name
	pickleMarks   = 64      // nesting of containers
	pickleObjects = 1 << 16 // containers and calls; a numpy array takes about ten
)

// pickleArgs maps every allowed opcode to its argument: n >= 0 bytes, or one of the forms below. It excludes the text
// opcodes of protocols 0 and 1, sets, class instances, and LONG4, which gopickle reads in quadratic time.
var pickleArgs = func() map[byte]int {
	out := map[byte]int{}
	for args, ops := range map[int]string{
		0: "(.01NRabesut}])\x85\x86\x87\x88\x89\x93\x94", 1: "Khq\x80", 2: "M", 4: "Jjr", 8: "G\x95",
		pickleLen1: "UC\x8a\x8c", pickleLen4: "TXB", pickleLen8: "\x8d\x8e\x96", pickleTwoLines: "c",
	} {
		for _, op := range []byte(ops) {
			out[op] = args
		}
	}
	return out
}()

const (
	pickleLen1     = -1 - iota // a length of one byte, then as many bytes
	pickleLen4                 // of four
	pickleLen8                 // of eight
	pickleTwoLines             // two lines
)

// blob is a long string in a file. Text means that Python 3 wrote it as Unicode, with one character for each byte.
type blob struct {
	At, length int64
	Text       bool
}

// Read loads the pickle at offset at of a file of size bytes.
func Read(r io.ReaderAt, at, size int64) (v any, err error) {
	code, blobs, err := pickleCode(bufio.NewReaderSize(io.NewSectionReader(r, at, size-at), 1<<16), at, size)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil { // gopickle asserts types and indexes without checks
			v, err = nil, fmt.Errorf("the pickle is malformed (%v)", p)
		}
		if err != nil {
			err = errors.New(pickleLineOf(err.Error()))
		}
	}()
	u := pickle.NewUnpickler(bytes.NewReader(code))
	u.FindClass = pickleGlobal
	u.PersistentLoad = func(id any) (any, error) { // only pickleCode writes persistent ids
		return blobs[id.(int)], nil
	}
	if v, err = u.Load(); err != nil {
		return nil, fmt.Errorf("pickle: %w", err)
	}
	return v, nil
}

func pickleLineOf(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	return s[:min(len(s), 400)]
}

// pickleCode copies one pickle, including STOP, without frames. Persistent ids replace long strings; they are indices
// into blobs.
func pickleCode(r *bufio.Reader, at, size int64) (code []byte, blobs []blob, err error) {
	marks, objects := 0, 0
	take := func(n int64) ([]byte, error) {
		if n > pickleMax-int64(len(code)) {
			return nil, fmt.Errorf("the pickle has more than %d bytes beside its pixels", pickleMax)
		}
		start := len(code)
		code = append(code, make([]byte, n)...)
		_, err := io.ReadFull(r, code[start:])
		at += n
		return code[start:], err
	}
	for {
		start := len(code)
		b, err := take(1)
		if err != nil {
			return nil, nil, pickleCut(err)
		}
		op := b[0]
		args, known := pickleArgs[op]
		switch {
		case !known:
			return nil, nil, fmt.Errorf("pickle opcode %#x at byte %d is not expected in a data set: "+
				"save it with pickle protocol 2 or later as lists, strings and numpy arrays", op, at-1)
		case args == pickleTwoLines:
			for range 2 {
				for n := 0; ; n++ {
					if b, err = take(1); err != nil || b[0] == '\n' {
						break
					}
					if n > pickleLine {
						return nil, nil, fmt.Errorf("a name of more than %d bytes in the pickle", pickleLine)
					}
				}
			}
		case args < 0:
			if b, err = take(map[int]int64{pickleLen1: 1, pickleLen4: 4, pickleLen8: 8}[args]); err != nil {
				break
			}
			var le [8]byte
			copy(le[:], b)
			n := binary.LittleEndian.Uint64(le[:])
			if n > uint64(size-at) {
				return nil, nil, pickleCut(io.EOF)
			}
			if n < pickleBlob {
				_, err = take(int64(n))
				break
			}
			blobs = append(blobs, blob{at, int64(n), op == 'X' || op == 0x8d})
			code = append(code[:start], 'J', 0, 0, 0, 0, 'Q')
			binary.LittleEndian.PutUint32(code[start+1:], uint32(len(blobs)-1))
			_, err = io.CopyN(io.Discard, r, int64(n))
			at += int64(n)
		default:
			_, err = take(int64(args))
			if op == 0x95 {
				code = code[:start]
			}
		}
		if err != nil {
			return nil, nil, pickleCut(err)
		}
		if strings.IndexByte("(}])Rt\x85\x86\x87", op) >= 0 {
			objects++
		}
		switch op {
		case '.':
			return code, blobs, nil
		case '(':
			marks++
		case '1', 'e', 't', 'u':
			marks = max(0, marks-1)
		}
		if marks > pickleMarks || objects > pickleObjects {
			return nil, nil, fmt.Errorf("the pickle nests more than %d deep or makes more than %d objects", pickleMarks,
				pickleObjects)
		}
	}
}

func pickleCut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the pickle ends before its STOP: the file is truncated, fetch it again")
	}
	return err
}

// Open returns a reader of the bytes that the string represents.
func (b blob) Open(r io.ReaderAt) io.Reader {
	plain := io.NewSectionReader(r, b.At, b.length)
	if b.Text {
		return latin1Reader{bufio.NewReaderSize(plain, 1<<16)}
	}
	return plain
}
