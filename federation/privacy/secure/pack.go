package secure

import (
	"encoding/binary"
	"fmt"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/runtime/tensor"
)

// Names of steps and of their tensors, which lie under message.GuardPart.
const (
	keysStep   = "secagg-keys"
	sharesStep = "secagg-shares"
	checkStep  = "secagg-check"
	trainStep  = "train" // the round's own instruction
	agreeStep  = "secagg-agree"
	revealStep = "secagg-reveal"

	sessionName    = message.GuardPart + "/session"
	keysName       = message.GuardPart + "/keys"
	rosterName     = message.GuardPart + "/roster"
	sharesName     = message.GuardPart + "/shares"
	inboxName      = message.GuardPart + "/inbox"
	complaintsName = message.GuardPart + "/complaints"
	sendersName    = message.GuardPart + "/senders"
	maskedName     = message.GuardPart + "/masked"
	questionName   = message.GuardPart + "/question"
	agreedName     = message.GuardPart + "/agreed"
	signedName     = message.GuardPart + "/signed"
	revealName     = message.GuardPart + "/reveal"
)

// pack encodes bytes as a tensor of int64, with eight bytes per number after the byte count: messages have only
// tensors.
func pack(name string, b []byte) tensor.Map {
	out := make([]int64, packed(len(b)))
	out[0] = int64(len(b))
	binary.Decode(append(slices.Clone(b), make([]byte, 7)...), binary.LittleEndian, out[1:])
	return tensor.Map{name: tensor.OfInts(out, len(out))}
}

// packed returns the length of the tensor of so many bytes.
func packed(bytes int) int { return 1 + (bytes+7)/8 }

// unpack returns the bytes that pack encoded.
func unpack(m tensor.Map, name string) ([]byte, error) {
	t := m[name]
	if t == nil || !t.IsInt() || len(t.Ints) < 1 || len(t.Shape) != 1 {
		return nil, fmt.Errorf("%s is %v; it must hold packed bytes", name, t)
	}

	n := t.Ints[0]
	if n < 0 || n > int64(8*(len(t.Ints)-1)) || n <= int64(8*(len(t.Ints)-2)) {
		return nil, fmt.Errorf("%s states %d bytes in %d numbers", name, n, len(t.Ints)-1)
	}

	out, err := binary.Append(nil, binary.LittleEndian, t.Ints[1:])
	if err == nil && slices.ContainsFunc(out[n:], func(b byte) bool { return b != 0 }) {
		err = fmt.Errorf("%s has data after its %d bytes", name, n)
	}

	return out[:n], err
}

// read unpacks and decodes one of several tensors.
func read[T any](m tensor.Map, name string, decode func([]byte) (T, error)) (out T, err error) {
	b, err := unpack(m, name)
	if err != nil {
		return out, err
	}
	return decode(b)
}
