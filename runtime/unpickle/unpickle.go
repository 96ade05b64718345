// Package unpickle reads Python's pickles from files that are not trusted. gopickle's stack machine executes the
// opcodes; it runs no code, and the caller decides what each global is. It imports no other package of the project.
package unpickle

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/nlpodyssey/gopickle/pickle"

	"promptfed/runtime/oneline"
)

// Options are the limits of a pickle and the meaning of its references.
type Options struct {
	Start   int64  // the place of the pickle in its file, from which Outside and errors count
	Opcodes string // the allowed ones; empty means all that are known
	Hint    string // ends the error for another opcode
	Bytes   int    // of one pickle, without strings that stay outside
	Line    int    // bytes of a name or number that is written as text
	Marks   int    // nesting of containers
	Objects int    // containers and calls
	// Outside is the length in bytes from which strings are not read: Outside takes their place. 0 means that all are
	// read. Opcodes must then exclude persistent ids.
	Outside    int64
	Global     func(module, name string) (any, error)
	Persistent func(id any) (any, error)
}

// Outside is the place of a long string in the file. Text means that Python 3 wrote it as Unicode, with one character
// for each byte.
type Outside struct {
	At, Length int64
	Text       bool
}

// Argument lengths of pickle opcodes, as in Python's pickletools: n >= 0 bytes follow; the negative values mean a
// length of 1, 4 or 8 bytes and that many bytes, or one or two lines. LONG4 is excluded, since gopickle reads it in
// quadratic time.
const (
	len1 = -1 - iota
	len4
	len8
	line1
	line2
)

var arguments = func() map[byte]int {
	table := map[byte]int{}
	for args, ops := range map[int]string{
		0:     "(.012NQRabd}elo]tsu)\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94",
		1:     "Khq\x80\x82",
		2:     "M\x83",
		4:     "Jjr\x84",
		8:     "G\x95",
		len1:  "UC\x8a\x8c",
		len4:  "TXB",
		len8:  "\x8d\x8e\x96",
		line1: "FILPSVgp",
		line2: "ci",
	} {
		for _, op := range []byte(ops) {
			table[op] = args
		}
	}
	return table
}()

// creates lists the opcodes that make an object much larger than themselves, and ends those that end a container.
const (
	creates = "(}])Rdilot\x81\x85\x86\x87\x8f\x91\x92"
	ends    = "1deilotu\x90\x91"
	frame   = 0x95
)

// Read reads the pickle at the start of r and returns the number of its bytes. Errors are one line.
func (o Options) Read(r io.Reader) (value any, size int64, err error) {
	defer func() {
		if p := recover(); p != nil { // gopickle asserts types and indexes without checks
			value, err = nil, fmt.Errorf("pickle is malformed (%v)", p)
		}
		if err != nil {
			err = errors.New(oneline.Short(err.Error()))
		}
	}()

	copier := &copier{Options: o, r: bufio.NewReader(r), at: o.Start}
	if err = copier.run(); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errors.New("pickle ends before its STOP: the file is truncated, fetch it again")
		}
		return nil, 0, err
	}

	u := pickle.NewUnpickler(bytes.NewReader(copier.code))
	u.FindClass, u.PersistentLoad = o.Global, o.Persistent
	if o.Outside > 0 {
		u.PersistentLoad = func(id any) (any, error) { return copier.outside[id.(int)], nil }
	}

	if value, err = u.Load(); err != nil {
		return nil, 0, fmt.Errorf("pickle: %w", err)
	}

	return value, copier.at - o.Start, nil
}

// copier copies one pickle, including STOP, without frames. It follows the opcodes only to find the end, and to refuse
// pickles that make an unpickler allocate more than the stream holds. Persistent ids replace long strings; they are
// indices into outside.
type copier struct {
	Options
	r       *bufio.Reader
	at      int64
	code    []byte
	outside []Outside
}

// take copies n bytes.
func (c *copier) take(n uint64) ([]byte, error) {
	if left := max(0, c.Bytes-len(c.code)); n > uint64(left) { // the id of a long string may exceed the limit
		return nil, fmt.Errorf("pickle is longer than %d bytes", c.Bytes)
	}

	from := len(c.code)
	c.code = append(c.code, make([]byte, n)...)
	read, err := io.ReadFull(c.r, c.code[from:])
	c.at += int64(read)
	return c.code[from:], err
}

func (c *copier) run() error {
	marks, objects := 0, 0
	for {
		from := len(c.code)
		b, err := c.take(1)
		if err != nil {
			return err
		}

		op := b[0]
		args, known := arguments[op]
		switch {
		case !known:
			return fmt.Errorf("unknown pickle opcode %#x at byte %d%s", op, c.at-1, c.Hint)
		case c.Opcodes != "" && strings.IndexByte(c.Opcodes, op) < 0:
			return fmt.Errorf("pickle opcode %#x at byte %d is not expected%s", op, c.at-1, c.Hint)
		}

		if err := c.argument(op, args, from); err != nil {
			return err
		}

		if strings.IndexByte(creates, op) >= 0 {
			if objects++; objects > c.Objects {
				return fmt.Errorf("pickle makes more than %d objects", c.Objects)
			}
		}

		switch {
		case op == '.':
			return nil
		case op == '(':
			if marks++; marks > c.Marks {
				return fmt.Errorf("pickle nests more than %d deep", c.Marks)
			}
		case strings.IndexByte(ends, op) >= 0:
			marks = max(0, marks-1)
		}
	}
}

// argument copies the argument of the opcode at from.
func (c *copier) argument(op byte, args, from int) error {
	switch {
	case args == line1 || args == line2:
		for range line1 - args + 1 {
			for n := 0; ; n++ {
				if n > c.Line {
					return fmt.Errorf("pickle holds a line of more than %d bytes", c.Line)
				}
				if b, err := c.take(1); err != nil {
					return err
				} else if b[0] == '\n' {
					break
				}
			}
		}
		return nil
	case args >= 0:
		b, err := c.take(uint64(args))
		if op == frame && err == nil {
			if binary.LittleEndian.Uint64(b) > uint64(c.Bytes) && c.Outside == 0 {
				return fmt.Errorf("pickle is longer than %d bytes", c.Bytes)
			}
			c.code = c.code[:from]
		}
		return err
	}

	b, err := c.take([]uint64{1, 4, 8}[-1-args])
	if err != nil {
		return err
	}

	var wide [8]byte
	copy(wide[:], b)
	length := binary.LittleEndian.Uint64(wide[:])
	if c.Outside == 0 || length < uint64(c.Outside) {
		_, err = c.take(length)
		return err
	}

	if length > math.MaxInt64 {
		return io.ErrUnexpectedEOF
	}

	c.outside = append(c.outside, Outside{c.at, int64(length), op == 'X' || op == 0x8d})
	c.code = append(c.code[:from], 'J', 0, 0, 0, 0, 'Q')
	binary.LittleEndian.PutUint32(c.code[from+1:], uint32(len(c.outside)-1))
	_, err = io.CopyN(io.Discard, c.r, int64(length))
	c.at += int64(length)
	return err
}
