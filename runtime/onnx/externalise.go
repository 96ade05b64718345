package onnx

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime/debug"

	"github.com/edsrzf/mmap-go"
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

	var whole mmap.MMap
	if size > 0 {
		if whole, err = mmap.Map(in, mmap.RDONLY, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer whole.Unmap()
	}

	m, err := externalised(whole, dir, filepath.ToSlash(location))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return m, nil
}

// externalised decodes a mapped file. Memory that cannot be read, because the file was cut short meanwhile or its disk
// fails, is an error; without SetPanicOnFault it would end the process.
func externalised(whole []byte, dir, location string) (model *ModelProto, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			model, err = nil, errors.New("the file was cut short while it was read, or cannot be read: try again")
		default:
			panic(fault)
		}
	}()

	copier := &externaliser{whole: whole}
	_, outside := find(dir, location)
	b := whole
	if outside == nil {
		if b, err = copier.message(whole, inModel, 0); err != nil {
			return nil, fmt.Errorf("not an ONNX model, or cut short: %w", err)
		}
	}

	if model, err = decode(b); err != nil {
		return nil, err
	}

	folder, own := path.Split(location)
	for t := range Tensors(model) {
		if len(t.ExternalData) > 0 && t.ExternalData[0].Value == ownFile && copier.left {
			t.ExternalData[0].Value = own
		}
	}

	if err := Check(model); err != nil {
		return nil, err
	}

	if err := CheckExternal(model, filepath.Join(dir, filepath.FromSlash(folder))); err != nil {
		return nil, err
	}

	for t := range externals(model) {
		for _, entry := range t.ExternalData {
			if entry.Key == "location" {
				entry.Value = path.Join(folder, entry.Value)
			}
		}
	}

	return model, nil
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
	whole []byte // the mapped file
	left  bool   // some tensor stays in the file
}

func (x *externaliser) message(encoded []byte, kind messageKind, depth int) (out []byte, err error) {
	if depth > maxNested {
		return nil, fmt.Errorf("messages are nested more than %d deep", maxNested)
	}

	dtype, place := TensorProto_UNDEFINED, []byte(nil)
	for len(encoded) > 0 {
		number, wire, value, length := nextField(encoded)
		if length < 0 {
			return nil, protowire.ParseError(length)
		}

		inner, nested := leads[kind][number]
		switch {
		case nested && wire == protowire.BytesType:
			if value, err = x.message(value, inner, depth+1); err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, number, wire), value)
		case kind == inTensor && number == 9 && wire == protowire.BytesType && len(value) >= minExternal &&
			floating(dtype):
			t := &TensorProto{}
			at := cap(x.whole) - cap(value) // both end where the mapped file ends
			SetExternal(t, External{File: ownFile, Offset: int64(at), Length: int64(len(value))})
			if place, err = proto.Marshal(t); err != nil {
				return nil, err
			}
			x.left = true
		default:
			if kind == inTensor && number == 2 && wire == protowire.VarintType {
				v, _ := protowire.ConsumeVarint(value)
				dtype = TensorProto_DataType(v)
			}
			out = append(out, encoded[:length]...)
		}

		encoded = encoded[length:]
	}

	return append(out, place...), nil // last, because a file may name the usual place behind the contents
}

// nextField splits the first field of an encoded message: its number, its type, its encoded value (of bytes without
// their length), and the length of all, which is negative for an error of protowire.
func nextField(encoded []byte) (number protowire.Number, wire protowire.Type, value []byte, length int) {
	number, wire, length = protowire.ConsumeTag(encoded)
	if length < 0 {
		return 0, 0, nil, length
	}

	m := protowire.ConsumeFieldValue(number, wire, encoded[length:])
	if m < 0 {
		return 0, 0, nil, m
	}

	value = encoded[length : length+m]
	if wire == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(value)
	}

	return number, wire, value, length + m
}

func floating(t TensorProto_DataType) bool {
	return t == TensorProto_FLOAT || t == TensorProto_DOUBLE || t == TensorProto_FLOAT16 || t == TensorProto_BFLOAT16
}

// ownFile is the location of tensors in the model's own file while it is read; no path is equal to it.
const ownFile = "\x00"
