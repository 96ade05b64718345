package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
)

// Version is the version of the protocol. Both sides must have the same one.
const Version = 11

// EndKind is the kind of the instruction after the last round. The other kinds are those of message.Instruction.
const EndKind = "end"

// ID matches identities of runs, processes, instructions and attempts.
var ID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// NewID returns a new identity.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Checksum returns the SHA-256 of encoded tensors, hexadecimal.
func Checksum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// ContentOf describes encoded tensors. It leaves their bytes out.
func ContentOf(body []byte) *Content { return &Content{Size: uint64(len(body)), Sum: Checksum(body)} }

// InstructionFor returns the instruction to one client with tensors of this content. Its attempt is not set.
func InstructionFor(run string, instruction message.Instruction, client, total int, content *Content) *Instruction {
	out := &Instruction{Run: run, Kind: string(instruction.Kind), Round: int64(instruction.Round),
		Statistic: instruction.Statistic, Set: instruction.Set,
		Steps: int64(instruction.Steps), Confusion: instruction.Confusion, Client: int64(client), Total: int64(total),
		Content: content}
	out.Id = IdentityOf(out)
	return out
}

// IdentityOf returns the hash of an instruction, independent of its attempt and of what the client should forget.
func IdentityOf(instruction *Instruction) string {
	h, content := sha256.New(), protobuf.ValueOrDefault(instruction.Content)
	fmt.Fprintf(h, "%q %q %d %q %q %d %v %d %d %d %q", instruction.Run, instruction.Kind, instruction.Round,
		instruction.Statistic, instruction.Set, instruction.Steps, instruction.Confusion,
		instruction.Client, instruction.Total, content.Size, content.Sum)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Message returns the instruction for the engine, without its tensors.
func (o *Instruction) Message() message.Instruction {
	return message.Instruction{Kind: message.Kind(o.Kind), Round: int(o.Round), Statistic: o.Statistic, Set: o.Set,
		Steps: int(o.Steps), Confusion: o.Confusion, Clients: []int{int(o.Client)}, Total: int(o.Total)}
}
