// Package tensorboard writes scalars as event files for TensorBoard.
//
// Go packages for this format (tfsum and similar) need TensorFlow's C library. The format itself needs a few lines over
// protowire: each record is a length, its masked CRC-32C, a serialised tensorflow.Event, and the masked CRC-32C of the
// event.
package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// FileName is the name of an event file; TensorBoard looks for "tfevents" in it.
const FileName = "events.out.tfevents.0.promptfed"

// Fields of tensorflow.Event and of its messages.
const (
	eventWallTime    = 1 // double
	eventStep        = 2 // int64
	eventFileVersion = 3 // string
	eventSummary     = 5 // Summary
	summaryValue     = 1 // repeated Summary.Value
	valueTag         = 1 // string
	valueSimple      = 2 // float
)

// Writer writes events until the first error, which Err holds.
type Writer struct {
	w   io.Writer
	Err error
}

// NewWriter starts a file.
func NewWriter(w io.Writer, at time.Time) *Writer {
	out := &Writer{w: w}
	e := event(at)
	e = protowire.AppendTag(e, eventFileVersion, protowire.BytesType)
	out.record(protowire.AppendString(e, "brain.Event:2"))
	return out
}

// Add writes the values of one step, one event each, sorted by tag.
func (w *Writer) Add(step int, at time.Time, values map[string]float64) {
	for _, tag := range slices.Sorted(maps.Keys(values)) {
		var value, summary []byte
		value = protowire.AppendTag(value, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(values[tag])))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
		e := event(at)
		if step != 0 { // proto3 writers omit zeros
			e = protowire.AppendTag(e, eventStep, protowire.VarintType)
			e = protowire.AppendVarint(e, uint64(step))
		}
		e = protowire.AppendTag(e, eventSummary, protowire.BytesType)
		w.record(protowire.AppendBytes(e, summary))
	}
}

func event(at time.Time) []byte {
	b := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
}

func (w *Writer) record(data []byte) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	b = binary.LittleEndian.AppendUint32(b, masked(data))
	if w.Err == nil {
		_, w.Err = w.w.Write(b)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of TensorFlow's record format.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
