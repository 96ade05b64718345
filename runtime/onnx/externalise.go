package onnx

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// minExternal is the smallest size in bytes of a floating-point tensor that stays in the file. Smaller ones are read,
// because code examines some of them.
const minExternal = 1 << 10

// OpenFile is ReadFile without the weights: floating-point tensors in the file itself become external data that refer
// to their bytes in it, so that all sessions map the same pages. The file must not change afterwards. location is
// relative to dir, the folder that sessions are given; all references are relative to dir.
//
// A file behind a link that leads out of dir is read completely.
func OpenFile(dir, location string) (*ModelProto, error) {
	name := filepath.Join(dir, filepath.FromSlash(location))
	in, size, err := open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	m, err := externalised(in, size, dir, filepath.ToSlash(location))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func externalised(in io.Reader, size int64, dir, location string) (*ModelProto, error) {
	_, outside := find(dir, location)
	x := &externaliser{in: bufio.NewReaderSize(in, 1<<16), whole: outside != nil}
	b, err := x.message(size, inModel, 0)
	if err != nil {
		return nil, fmt.Errorf("not an ONNX model, or cut short: %w", err)
	}
	m, err := decode(b)
	if err != nil {
		return nil, err
	}
	folder, own := path.Split(location)
	for t := range Tensors(m) {
		if len(t.ExternalData) > 0 && t.ExternalData[0].Value == ownFile && x.left {
			t.ExternalData[0].Value = own
		}
	}
	if err := Check(m); err != nil {
		return nil, err
	}
	if err := CheckExternal(m, filepath.Join(dir, filepath.FromSlash(folder))); err != nil {
		return nil, err
	}
	for t := range externals(m) {
		for _, entry := range t.ExternalData {
			if entry.Key == "location" {
				entry.Value = path.Join(folder, entry.Value)
			}
		}
	}
	return m, nil
}

// Kinds of messages that contain tensors, and their fields that do.
type messageKind int

const (
	inModel messageKind = iota
	inGraph
	inNode
	inAttribute
	inTensor
)

var leads = map[messageKind]map[protowire.Number]messageKind{
	inModel:     {7: inGraph},
	inGraph:     {1: inNode, 5: inTensor},
	inNode:      {5: inAttribute},
	inAttribute: {5: inTensor, 6: inGraph, 10: inTensor, 11: inGraph},
	inTensor:    {},
}

// externaliser copies an encoded model without the contents of its large tensors.
type externaliser struct {
	in    *bufio.Reader
	at    int64
	whole bool // read all tensors
	left  bool // some tensor stays in the file
}

func (x *externaliser) ReadByte() (byte, error) {
	b, err := x.in.ReadByte()
	if err == nil {
		x.at++
	}
	return b, err
}

// raw reads n bytes, in pieces, so that a wrong size in a file does not allocate memory.
func (x *externaliser) raw(to []byte, n int64) ([]byte, error) {
	for n > 0 {
		piece := min(n, 1<<20)
		from := len(to)
		to = append(to, make([]byte, piece)...)
		if _, err := io.ReadFull(x.in, to[from:]); err != nil {
			return nil, err
		}
		x.at, n = x.at+piece, n-piece
	}
	return to, nil
}

func (x *externaliser) message(n int64, kind messageKind, depth int) ([]byte, error) {
	if depth > maxNested {
		return nil, fmt.Errorf("messages are nested more than %d deep", maxNested)
	}
	end := x.at + n
	var out []byte
	dtype := TensorProto_UNDEFINED
	for x.at < end {
		tag, err := binary.ReadUvarint(x)
		if err != nil {
			return nil, err
		}
		field, wire := protowire.DecodeTag(tag)
		var number uint64 // the value of the field, or the bytes of it
		switch wire {
		case protowire.VarintType, protowire.BytesType:
			number, err = binary.ReadUvarint(x)
		case protowire.Fixed32Type:
			number = 4
		case protowire.Fixed64Type:
			number = 8
		default:
			err = fmt.Errorf("wire type %d", wire)
		}
		if err != nil {
			return nil, err
		}
		if wire == protowire.VarintType {
			if out = protowire.AppendVarint(protowire.AppendVarint(out, tag), number); kind == inTensor && field == 2 {
				dtype = TensorProto_DataType(number)
			}
			continue
		}
		if number > uint64(max(0, end-x.at)) {
			return nil, fmt.Errorf("a field of %d bytes where %d are left", number, end-x.at)
		}
		size := int64(number)
		inner, nested := leads[kind][field]
		switch {
		case wire != protowire.BytesType:
			out, err = x.raw(protowire.AppendVarint(out, tag), size)
		case nested:
			var b []byte
			b, err = x.message(size, inner, depth+1)
			out = protowire.AppendBytes(protowire.AppendVarint(out, tag), b)
		case kind == inTensor && field == 9 && size >= minExternal && !x.whole && floating(dtype):
			t := &TensorProto{}
			SetExternal(t, External{File: ownFile, Offset: x.at, Length: size})
			if out, err = (proto.MarshalOptions{}).MarshalAppend(out, t); err == nil {
				_, err = x.in.Discard(int(size))
			}
			x.at, x.left = x.at+size, true
		default:
			out, err = x.raw(protowire.AppendVarint(protowire.AppendVarint(out, tag), number), size)
		}
		if err != nil {
			return nil, err
		}
	}
	if x.at != end {
		return nil, errors.New("a message ends inside a field")
	}
	return out, nil
}

func floating(t TensorProto_DataType) bool {
	return t == TensorProto_FLOAT || t == TensorProto_DOUBLE || t == TensorProto_FLOAT16 || t == TensorProto_BFLOAT16
}

// ownFile is the location of tensors in the model's own file while it is read; no path is equal to it.
const ownFile = "\x00"
