package graph

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// leastMapped is from how many bytes on a floating-point tensor stays in the file: smaller ones are read, as code looks
// into some of them.
const leastMapped = 1 << 10

// maxNested bounds how deep messages of a file may be inside one another.
const maxNested = 200

// OpenFile is ReadFile without the weights: floating-point tensors that the file itself holds become references to
// where their bytes lie in it, so that every session maps the same pages. The file must not change afterwards. location
// is what the references call the file, relative to the folder that graphs with it are run in; tensors that it keeps in
// files beside it are named relative to that folder too.
func OpenFile(name, location string) (*File, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() >= 2<<30 {
		return nil, fmt.Errorf("%s: %d bytes, an ONNX file has less than 2 GiB; export with external data", name,
			st.Size())
	}
	t := &thinner{in: bufio.NewReaderSize(in, 1<<16), file: filepath.ToSlash(location)}
	b, err := t.message(st.Size(), inModel, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: not an ONNX model, or cut short: %w", name, err)
	}
	m := &onnx.ModelProto{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%s: not an ONNX model: %w", name, err)
	}
	if err := relocate(m, path.Dir(t.file), t.file, t.mapped); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := ReadModel(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// Messages that lead to tensors, and their fields that do.
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

// thinner copies an encoded model without the contents of its large tensors.
type thinner struct {
	in     *bufio.Reader
	at     int64
	file   string
	mapped bool // some tensor was left in the file
}

func (t *thinner) varint() (uint64, error) {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		b, err := t.in.ReadByte()
		if err != nil {
			return 0, err
		}
		t.at++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("a number of more than 64 bits")
}

// raw reads n bytes, in pieces: what a file claims is not believed before it is there.
func (t *thinner) raw(to []byte, n int64) ([]byte, error) {
	for n > 0 {
		piece := min(n, 1<<20)
		from := len(to)
		to = append(to, make([]byte, piece)...)
		if _, err := io.ReadFull(t.in, to[from:]); err != nil {
			return nil, err
		}
		t.at, n = t.at+piece, n-piece
	}
	return to, nil
}

// message copies a message of n bytes.
func (t *thinner) message(n int64, kind messageKind, depth int) ([]byte, error) {
	if depth > maxNested {
		return nil, fmt.Errorf("messages are nested more than %d deep", maxNested)
	}
	end := t.at + n
	var out []byte
	dtype := uint64(0)
	for t.at < end {
		tag, err := t.varint()
		if err != nil {
			return nil, err
		}
		field, wire := protowire.DecodeTag(tag)
		out = protowire.AppendVarint(out, tag)
		switch wire {
		case protowire.VarintType:
			v, err := t.varint()
			if err != nil {
				return nil, err
			}
			if kind == inTensor && field == 2 {
				dtype = v
			}
			out = protowire.AppendVarint(out, v)
			continue
		case protowire.Fixed32Type, protowire.Fixed64Type:
			size := int64(4)
			if wire == protowire.Fixed64Type {
				size = 8
			}
			if out, err = t.raw(out, min(size, end-t.at)); err != nil {
				return nil, err
			}
			continue
		case protowire.BytesType:
		default:
			return nil, fmt.Errorf("wire type %d", wire)
		}
		length, err := t.varint()
		if err != nil {
			return nil, err
		}
		if length > uint64(max(0, end-t.at)) {
			return nil, fmt.Errorf("%d bytes are announced where %d are left", length, end-t.at)
		}
		size := int64(length)
		inner, nested := leads[kind][field]
		switch {
		case nested:
			b, err := t.message(size, inner, depth+1)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(out, b)
		case kind == inTensor && field == 9 && size >= leastMapped && floating(DType(dtype)):
			out = out[:len(out)-protowire.SizeVarint(tag)]
			out = append(out, t.reference(size)...)
			if _, err := t.in.Discard(int(size)); err != nil {
				return nil, err
			}
			t.at, t.mapped = t.at+size, true
		default:
			out = protowire.AppendVarint(out, length)
			if out, err = t.raw(out, size); err != nil {
				return nil, err
			}
		}
	}
	if t.at != end {
		return nil, errors.New("a message ends inside a field")
	}
	return out, nil
}

func floating(t DType) bool { return t != onnx.TensorProto_UNDEFINED && Differentiable(t) }

// reference is the fields of a tensor of size bytes at the reader's place.
func (t *thinner) reference(size int64) []byte {
	b, err := proto.Marshal(&onnx.TensorProto{DataLocation: onnx.TensorProto_EXTERNAL,
		ExternalData: []*onnx.StringStringEntryProto{
			{Key: "location", Value: ownMark + t.file},
			{Key: "offset", Value: strconv.FormatInt(t.at, 10)},
			{Key: "length", Value: strconv.FormatInt(size, 10)},
		}})
	if err != nil { // three short strings
		panic(err)
	}
	return b
}

// ownMark starts the location of tensors that lie in the model's own file, until relocate has seen them; no path has
// it.
const ownMark = "\x00"

// relocate names the files of external data relative to the folder that dir is in.
func relocate(m *onnx.ModelProto, dir, own string, mapped bool) error {
	return eachTensor(m.Graph, 0, func(t *onnx.TensorProto) error {
		if t.DataLocation != onnx.TensorProto_EXTERNAL {
			return nil
		}
		for _, e := range t.ExternalData {
			if e.Key != "location" {
				continue
			}
			if e.Value == ownMark+own && mapped {
				e.Value = own
				continue
			}
			if !filepath.IsLocal(filepath.FromSlash(e.Value)) {
				return fmt.Errorf("tensor %q lies in %q, which is not a path inside the folder of the model", t.Name,
					e.Value)
			}
			e.Value = path.Join(dir, e.Value)
		}
		return nil
	})
}

func eachTensor(g *onnx.GraphProto, depth int, visit func(*onnx.TensorProto) error) error {
	if g == nil || depth > maxNested {
		return nil
	}
	for _, t := range g.Initializer {
		if err := visit(t); err != nil {
			return err
		}
	}
	for _, p := range g.Node {
		for _, a := range p.Attribute {
			tensors := a.Tensors
			if a.T != nil {
				tensors = append(tensors[:len(tensors):len(tensors)], a.T)
			}
			for _, t := range tensors {
				if err := visit(t); err != nil {
					return err
				}
			}
		}
		for _, inner := range innerGraphs(p) {
			if err := eachTensor(inner, depth+1, visit); err != nil {
				return err
			}
		}
	}
	return nil
}
