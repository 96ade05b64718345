package message

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// EncodeTensors encodes tensors as a safetensors file. Equal tensors have equal bytes.
func EncodeTensors(m tensor.Map) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(m.Bytes() + 1024)
	if err := safetensors.Write(&b, m, nil); err != nil {
		return nil, fmt.Errorf("encoding a message: %w", err)
	}
	return b.Bytes(), nil
}

// DecodeTensors reads the bytes of EncodeTensors. It refuses damaged bytes; element types that EncodeTensors does not
// write, since their tensors take up to eight times their size in memory; and headers of more than 2 MiB, since they
// take more than that.
func DecodeTensors(b []byte) (tensor.Map, error) {
	return decode(b, maxHeader, func(tensor.Specs) error { return nil })
}

// maxHeader is the size of the largest header that DecodeTensors reads, in bytes.
const maxHeader = 2 << 20

// elements are the element types that EncodeTensors writes, by tensor.Spec.Int.
var elements = map[bool]string{false: "F32", true: "I64"}

// decode reads tensors whose forms check accepts. The size of their header is limited, in bytes.
func decode(data []byte, most int64, check func(tensor.Specs) error) (m tensor.Map, err error) {
	defer func() {
		if err != nil {
			m, err = nil, fmt.Errorf("decoding a message: %w", err)
		}
	}()

	if len(data) >= 8 {
		if n := binary.LittleEndian.Uint64(data); n > uint64(max(0, most-8)) {
			return nil, fmt.Errorf("a header of %d bytes; at most %d are accepted", n, most-8)
		}
	}

	file, err := safetensors.Parse(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}

	var forms tensor.Specs
	for _, name := range file.Names() {
		info, err := file.Info(name)
		if err == nil && info.DType != elements[false] && info.DType != elements[true] {
			err = fmt.Errorf("tensor %.100q has elements of type %s; messages have only F32 and I64", name, info.DType)
		}
		if err != nil {
			return nil, err
		}
		forms = append(forms, tensor.Spec{Name: name, Int: info.DType == elements[true], Shape: info.Shape})
	}

	if err := check(forms); err != nil {
		return nil, err
	}

	return file.Tensors()
}

// EncodedSize returns the number of bytes that EncodeTensors returns, without encoding. Of tensors that cannot be
// encoded it returns the bytes of their elements.
func EncodedSize(m tensor.Map) int {
	_, n, err := MaxEncodedSize(tensor.SpecsOf(m))
	if err != nil {
		return m.Bytes()
	}
	return int(n)
}

// MaxEncodedSize returns the sizes of the largest encoded tensors of these forms, in bytes: of their header, and of
// header and tensors together.
func MaxEncodedSize(forms tensor.Specs) (head, all int64, err error) {
	entries := make([]safetensors.Entry, len(forms))
	for i, f := range forms {
		entries[i] = safetensors.Entry{Name: f.Name, DType: elements[f.Int], Shape: slices.Clone(f.Shape)}
		for j, n := range f.Shape {
			entries[i].Shape[j] = max(n, -n)
		}
	}

	return safetensors.Size(entries)
}

// DecodeTensorsAs reads the bytes of EncodeTensors, of tensors of these forms. It compares names, element types, shapes
// and the size of the header before it reads any element.
func DecodeTensorsAs(b []byte, forms tensor.Specs) (tensor.Map, error) {
	head, all, err := MaxEncodedSize(forms)
	if err == nil && int64(len(b)) > all {
		err = fmt.Errorf("%d bytes of tensors; those that were asked for have at most %d", len(b), all)
	}

	if err != nil {
		return nil, fmt.Errorf("decoding a message: %w", err)
	}

	return decode(b, head, forms.Check)
}

// UploadTensors returns the tensors of an upload as they are sent.
func UploadTensors(u method.Upload) tensor.Map {
	m := tensor.Map{}.Put(extraPart, u.Extra)
	if u.Packed != nil {
		return m.Put(packedPart, u.Packed)
	}
	return m.Put(sharedPart, u.Shared)
}

// Tensors returns the tensors of an instruction to one client, which are sent beside its header.
func (o Instruction) Tensors() tensor.Map {
	m := tensor.Map{}.Put(sharedPart, o.Shared).Put(downPart, o.Broadcast)
	for _, id := range o.Clients {
		m.Put(eachPart, o.PerClient[id])
	}
	return m
}

// Reencode sends an instruction to one client through its encoded form.
func Reencode(instruction Instruction) (Instruction, error) {
	m, err := roundTrip(instruction.Tensors())
	if err != nil {
		return instruction, err
	}
	return instruction.WithTensors(m)
}

// ReencodeReply returns a reply to the instruction after it passed through its encoded form.
func (o Instruction) ReencodeReply(reply Reply) (Reply, error) {
	m := reply.Tensors()
	if len(m) == 0 {
		return reply, nil
	}

	m, err := roundTrip(m)
	if err != nil {
		return reply, err
	}

	return o.WithReplyTensors(reply, m)
}

func roundTrip(m tensor.Map) (tensor.Map, error) {
	b, err := EncodeTensors(m)
	if err != nil {
		return nil, err
	}
	return DecodeTensors(b)
}

// SortReplies sorts replies in place, by client. A sum over clients, whose client is below 0, comes first.
func SortReplies(r []Reply) { slices.SortFunc(r, func(a, b Reply) int { return a.Client - b.Client }) }

// WithTensors returns the instruction with the tensors that came with it.
func (o Instruction) WithTensors(m tensor.Map) (Instruction, error) {
	if err := OnlyUnder(m, sharedPart, downPart, eachPart); err != nil {
		return o, err
	}
	if len(o.Clients) != 1 {
		return o, fmt.Errorf("an instruction must be for one client; this one is for %d", len(o.Clients))
	}

	o.Shared, o.Broadcast = m.WithoutPrefix(sharedPart), m.WithoutPrefix(downPart)
	if each := m.WithoutPrefix(eachPart); len(each) > 0 {
		o.PerClient = map[int]tensor.Map{o.Clients[0]: each}
	}

	return o, nil
}

// Tensors returns the tensors of a reply, which are sent beside its header.
func (r Reply) Tensors() tensor.Map {
	return UploadTensors(r.Upload).Put(statisticsPart, r.Scores.tables())
}

// UploadSize is the size in bytes of the encoded upload, without statistics and measurements.
func (r Reply) UploadSize() int { return EncodedSize(UploadTensors(r.Upload)) }

// WithReplyTensors returns a reply to the instruction with the tensors that came with it.
func (o Instruction) WithReplyTensors(reply Reply, tensors tensor.Map) (Reply, error) {
	parameters, compressed := sharedPart, o.Kind == Train && o.Codec != nil
	if compressed {
		parameters = packedPart
	}

	err := OnlyUnder(tensors, parameters, extraPart, statisticsPart)
	if err == nil {
		err = reply.Scores.addTables(tensors.WithoutPrefix(statisticsPart))
	}

	if err != nil {
		return reply, err
	}

	reply.Upload.Shared, reply.Upload.Extra = tensors.WithoutPrefix(parameters), tensors.WithoutPrefix(extraPart)
	if !compressed {
		return reply, nil
	}

	reply.Upload.Packed = reply.Upload.Shared
	if reply.Upload.Shared, err = o.Codec.Unpack(o.Shared, reply.Upload.Packed); err != nil {
		return reply, fmt.Errorf("the compressed upload: %w", err)
	}

	return reply, CheckFinite("the compressed upload's ", reply.Upload.Shared)
}

// OnlyUnder refuses tensors that belong to no part of a message.
func OnlyUnder(m tensor.Map, parts ...string) error {
	n := 0
	for _, p := range parts {
		n += len(m.WithoutPrefix(p))
	}

	if n != len(m) {
		return fmt.Errorf("a message has unexpected tensors, outside of %v: %.200q", parts, m.Names())
	}

	return nil
}

const (
	sharedPart = "shared"
	packedPart = "packed"
	extraPart  = "extra"
	downPart   = "down"
	eachPart   = "each"

	statisticsPart = "statistics"
)
