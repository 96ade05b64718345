package message

import (
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

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

// Reencode sends an instruction through its encoded form.
func Reencode(o Instruction) (Instruction, error) {
	m, err := RoundTrip(o.Tensors())
	if err != nil {
		return o, err
	}
	return o.with(m), nil
}

func (o Instruction) with(m tensor.Map) Instruction {
	o.Shared, o.Broadcast = m.WithoutPrefix(sharedPart), m.WithoutPrefix(downPart)
	if each := m.WithoutPrefix(eachPart); len(each) > 0 {
		o.PerClient = map[int]tensor.Map{o.Clients[0]: each}
	}
	return o
}

func RoundTrip(m tensor.Map) (tensor.Map, error) {
	b, err := EncodeTensors(m)
	if err != nil {
		return nil, err
	}
	return DecodeTensors(b)
}

func SortReplies(r []Reply) { slices.SortFunc(r, func(a, b Reply) int { return a.Client - b.Client }) }

// WithTensors returns the instruction with the tensors that came with it.
func (o Instruction) WithTensors(m tensor.Map) (Instruction, error) {
	if err := onlyUnder(m, sharedPart, downPart, eachPart); err != nil {
		return o, err
	}
	if len(o.Clients) != 1 {
		return o, fmt.Errorf("an instruction must be for one client; this one is for %d", len(o.Clients))
	}
	return o.with(m), nil
}

// Tensors returns the tensors of a reply, which are sent beside its header.
func (r Reply) Tensors() tensor.Map {
	return UploadTensors(r.Upload).Put(termsPart, r.Stats.Terms.tensors()).Put(statisticsPart, r.Scores.tables())
}

// UploadSize is the size in bytes of the encoded upload, without statistics and measurements.
func (r Reply) UploadSize() int { return EncodedSize(UploadTensors(r.Upload)) }

// WithReplyTensors returns a reply to the instruction with the tensors that came with it.
func (o Instruction) WithReplyTensors(r Reply, m tensor.Map) (Reply, error) {
	parameters, compressed := sharedPart, o.Kind == Train && o.Codec != nil
	if compressed {
		parameters = packedPart
	}
	err := onlyUnder(m, parameters, extraPart, termsPart, statisticsPart)
	if err == nil {
		err = r.Scores.addTables(m.WithoutPrefix(statisticsPart))
	}
	if err != nil {
		return r, err
	}
	if r.Stats.Terms, err = lossTermsOf(m.WithoutPrefix(termsPart)); err != nil {
		return r, err
	}
	r.Upload.Shared, r.Upload.Extra = m.WithoutPrefix(parameters), m.WithoutPrefix(extraPart)
	if !compressed {
		return r, nil
	}
	r.Upload.Packed = r.Upload.Shared
	if r.Upload.Shared, err = o.Codec.Unpack(o.Shared, r.Upload.Packed); err != nil {
		return r, fmt.Errorf("the compressed upload: %w", err)
	}
	return r, CheckFinite("the compressed upload's ", r.Upload.Shared)
}

// onlyUnder refuses tensors that belong to no part of a message.
func onlyUnder(m tensor.Map, parts ...string) error {
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
	termsPart  = "terms"

	statisticsPart = "statistics"
)
