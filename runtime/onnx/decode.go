package onnx

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	maxNested = 200     // nested messages of a file
	maxParts  = 1 << 22 // messages and strings of a file
)

// Marshal encodes a model. The same model has the same bytes.
func Marshal(m *ModelProto) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// decode decodes a model after counting its messages: an empty message takes two bytes in a file, and a hundred times
// as many in memory.
func decode(b []byte) (*ModelProto, error) {
	m, left := &ModelProto{}, maxParts
	if err := count(b, m.ProtoReflect().Descriptor(), 0, &left); err != nil {
		return nil, fmt.Errorf("not an ONNX model, or cut short: %w", err)
	}

	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("not an ONNX model: %w", err)
	}

	return m, nil
}

// count subtracts the messages and strings of an encoded message from left.
func count(encoded []byte, descriptor protoreflect.MessageDescriptor, depth int, left *int) error {
	if depth > maxNested {
		return fmt.Errorf("messages are nested more than %d deep", maxNested)
	}

	for len(encoded) > 0 {
		number, wire, value, length := nextField(encoded)
		switch {
		case length < 0:
			return protowire.ParseError(length)
		case wire == protowire.StartGroupType:
			return errors.New("it holds a group; ONNX has no groups")
		case wire == protowire.BytesType:
			if *left--; *left < 0 {
				return fmt.Errorf("it has more than %d messages and strings", maxParts)
			}
			if f := descriptor.Fields().ByNumber(number); f != nil && f.Message() != nil {
				if err := count(value, f.Message(), depth+1, left); err != nil {
					return err
				}
			}
		}

		encoded = encoded[length:]
	}

	return nil
}
