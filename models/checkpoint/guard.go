package checkpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	maxPickle = 16 << 20 // bytes of one pickle; the largest CLIP needs half a megabyte
	maxLine   = 4096     // bytes of a name or number written as text
	// bytes of a tensor's or storage's name, so that an error can quote it; published ones have fewer than 100
	maxName    = 512
	maxMarks   = 256     // nesting of containers within a pickle
	maxObjects = 1 << 19 // containers and calls in one pickle; a tensor takes about ten
)

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

const frameOp = 0x95

var opArgument = func() (table [256]int) {
	const unknown = -100
	for i := range table {
		table[i] = unknown
	}
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

// creates lists the opcodes that make an object much larger than themselves.
const creates = "(}])Rdilot\x81\x85\x86\x87\x8f\x91\x92"

// readPickle copies one pickle from r, including STOP. It follows the opcodes only to find the end, and to refuse
// pickles that make an unpickler allocate more than the stream holds: lengths are checked against maxPickle before
// anything is read.
func readPickle(r *bufio.Reader) ([]byte, error) {
	var out []byte
	marks, objects := 0, 0
	take := func(n uint64) ([]byte, error) {
		if n > maxPickle || uint64(len(out))+n > maxPickle {
			return nil, fmt.Errorf("pickle is longer than %d bytes", maxPickle)
		}
		at := len(out)
		out = append(out, make([]byte, n)...)
		_, err := io.ReadFull(r, out[at:])
		return out[at:], err
	}
	for {
		b, err := take(1)
		if err != nil {
			return nil, truncated(err)
		}
		op := b[0]
		switch args := opArgument[op]; args {
		case len1, len4, len8:
			b, err = take([]uint64{1, 4, 8}[-1-args])
			if err == nil {
				var n [8]byte
				copy(n[:], b)
				_, err = take(binary.LittleEndian.Uint64(n[:]))
			}
		case line1, line2:
			for range line1 - args + 1 {
				for n := 0; ; n++ {
					if n > maxLine {
						return nil, fmt.Errorf("pickle holds a line of more than %d bytes", maxLine)
					}
					b, err = take(1)
					if err != nil || b[0] == '\n' {
						break
					}
				}
			}
		default:
			if args < 0 {
				return nil, fmt.Errorf("unknown pickle opcode %#x at byte %d", op, len(out)-1)
			}
			b, err = take(uint64(args))
			if op == frameOp && err == nil && binary.LittleEndian.Uint64(b) > maxPickle {
				return nil, fmt.Errorf("pickle is longer than %d bytes", maxPickle)
			}
		}
		if err != nil {
			return nil, truncated(err)
		}
		if strings.IndexByte(creates, op) >= 0 {
			if objects++; objects > maxObjects {
				return nil, fmt.Errorf("pickle makes more than %d objects", maxObjects)
			}
		}
		switch op {
		case '.':
			return out, nil
		case '(':
			if marks++; marks > maxMarks {
				return nil, fmt.Errorf("pickle nests more than %d deep", maxMarks)
			}
		case '1', 'd', 'e', 'i', 'l', 'o', 't', 'u', 0x90, 0x91:
			marks = max(0, marks-1)
		}
	}
}

func truncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("pickle ends before its STOP; the file is truncated")
	}
	return err
}
