package pickle

import (
	"bufio"
	"io"

	"promptfed/runtime/unpickle"
)

// Python pickles of data sets hold lists of names and numbers, and large strings of pixels, which stay in the file.
const (
	pickleMax     = 8 << 20 // bytes without the strings that stay in the file; CIFAR-100 needs two million
	pickleBlob    = 1 << 12 // strings of at least this many bytes stay in the file
	pickleLine    = 256     // bytes of a global's name
	pickleMarks   = 64      // nesting of containers
	pickleObjects = 1 << 16 // containers and calls; a numpy array takes about ten
)

// pickleOpcodes are those that such pickles need. They exclude the text opcodes of protocols 0 and 1, sets and class
// instances.
const pickleOpcodes = "(.01NRabesut}])\x85\x86\x87\x88\x89\x93\x94Khq\x80MJjrG\x95UC\x8a\x8cTXB\x8d\x8e\x96c"

// blob is a long string in a file.
type blob struct{ unpickle.Outside }

// Read loads the pickle at offset at of a file of size bytes.
func Read(r io.ReaderAt, at, size int64) (any, error) {
	v, _, err := unpickle.Options{Start: at, Opcodes: pickleOpcodes, Hint: " in a data set: save it with pickle " +
		"protocol 2 or later as lists, strings and numpy arrays", Bytes: pickleMax, Line: pickleLine,
		Marks: pickleMarks, Objects: pickleObjects, Outside: pickleBlob, Global: pickleGlobal,
	}.Read(io.NewSectionReader(r, at, size-at))
	return v, err
}

// Open returns a reader of the bytes that the string represents.
func (b blob) Open(r io.ReaderAt) io.Reader {
	plain := io.NewSectionReader(r, b.At, b.Length)
	if b.Text {
		return latin1Reader{bufio.NewReaderSize(plain, 1<<16)}
	}
	return plain
}
