package protocol

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/runtime/tensor"
)

// Version is the version of the protocol. Both sides must have the same one.
const Version = 7

// magic starts every message; the last byte is Version.
var magic = [4]byte{'P', 'F', 'L', Version}

// maxHeader is the largest JSON header of an instruction or a reply, maxControl that of any other message.
const (
	maxHeader  = 16 << 10
	maxControl = 4 << 20
)

// prefix is the size of the fixed fields: magic, length of the header (uint32, little endian), length of the signature
// (uint16).
const prefix = len(magic) + 4 + 2

// MaxFrame is the largest size of a message without its tensors.
const MaxFrame = prefix + maxHeader + certs.MaxSignature

// Kinds of messages. The kind is signed too, so that no message is taken for another kind.
const (
	HelloMessage       = "hello"
	JoinMessage        = "join"
	JoinReplyMessage   = "verdict"
	HeartbeatMessage   = "beat"
	InstructionMessage = "order"
	ReplyMessage       = "reply"
	ReceiptMessage     = "receipt"
)

// Instruction is the header of an instruction. Its kinds are those of message.Instruction, and end.
type Instruction struct {
	Run       string `json:"run"`
	ID        string `json:"id"`  // see Identity
	Try       string `json:"try"` // this attempt
	Seq       int64  `json:"seq,omitempty"`
	Kind      string `json:"kind"`
	Round     int    `json:"round"`
	Statistic string `json:"statistic,omitempty"`
	Set       string `json:"set,omitempty"`
	Steps     int    `json:"steps,omitempty"`
	Confusion bool   `json:"confusion,omitempty"`
	Client    int    `json:"client"`
	Total     int    `json:"of"`
	Accepted  string `json:"accepted,omitempty"` // the client's last accepted upload, by instruction
	Safe      string `json:"safe,omitempty"`     // likewise, in the server's last checkpoint
	To        string `json:"to,omitempty"`       // address of a worker's job
	Content
}

// EndKind is the instruction after the last round.
const EndKind = "end"

// Reply is the header of a reply.
type Reply struct {
	Run    string          `json:"run"`
	ID     string          `json:"id"` // of the instruction
	Try    string          `json:"try"`
	Client int             `json:"client"`
	Error  string          `json:"error,omitempty"` // why there is no answer
	N      int             `json:"n,omitempty"`
	Loss   float64         `json:"loss,omitempty"`
	Steps  int             `json:"steps,omitempty"`
	Scores *message.Scores `json:"scores,omitempty"`
	Content
}

// Message returns the reply without its tensors.
func (r Reply) Message() message.Reply {
	out := message.Reply{Client: r.Client, Stats: message.Stats{Loss: r.Loss, Steps: r.Steps}}
	out.Upload.Client, out.Upload.N = r.Client, r.N
	if r.Scores != nil {
		out.Scores = *r.Scores
	}
	return out
}

// Content describes the tensors of a message.
type Content struct {
	Size   int    `json:"size"`             // encoded size in bytes
	Sum    string `json:"sum"`              // SHA-256 of the encoded tensors
	Object string `json:"object,omitempty"` // their name, if they come in pieces
}

func (c *Content) SetBody(body []byte) { c.Size, c.Sum = len(body), Checksum(body) }

func Checksum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Detach marks the tensors as sent in pieces.
func (c *Content) Detach() { c.Object = c.Sum[:32] }

// Identity returns the hash of an instruction, independent of its attempt.
func (o Instruction) Identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %q %q %d %v %d %d %d %q", o.Run, o.Kind, o.Round, o.Statistic, o.Set, o.Steps, o.Confusion,
		o.Client, o.Total, o.Size, o.Sum)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// InstructionFor returns the header of an instruction to one client.
func InstructionFor(run string, o message.Instruction, client int) Instruction {
	return Instruction{Run: run, Kind: string(o.Kind), Round: o.Round, Statistic: o.Statistic, Set: o.Set,
		Steps: o.Steps, Confusion: o.Confusion, Client: client, Total: o.Total}
}

// Message returns the instruction without its tensors.
func (o Instruction) Message() message.Instruction {
	return message.Instruction{Kind: message.Kind(o.Kind), Round: o.Round, Statistic: o.Statistic, Set: o.Set,
		Steps: o.Steps, Confusion: o.Confusion, Clients: []int{o.Client}, Total: o.Total}
}

// HeaderLimit returns the largest size of a message's header.
func HeaderLimit(what string) int {
	switch what {
	case InstructionMessage, ReplyMessage:
		return maxHeader
	}
	return maxControl
}

// Pack joins a signed header and the bytes after it. The header holds their digest, so the signature covers both.
func Pack(by certs.Signer, what string, header any, body []byte) ([]byte, error) {
	text, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("a message's header: %w", err)
	}
	if most := HeaderLimit(what); len(text) > most {
		return nil, fmt.Errorf("a message's header has %d bytes; at most %d are allowed", len(text), most)
	}
	signature, err := by.Sign(SigningDigest(what, text))
	if err != nil {
		return nil, fmt.Errorf("a message's signature: %w", err)
	}
	b := make([]byte, 0, prefix+len(text)+len(signature)+len(body))
	b = append(b, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(signature)))
	b = append(b, text...)
	b = append(b, signature...)
	return append(b, body...), nil
}

// SigningDigest returns the digest to sign.
func SigningDigest(what string, header []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "promptfed %d %s\n", Version, what)
	h.Write(header)
	return h.Sum(nil)
}

// Frame is a message in parts; its signature is not verified yet.
type Frame struct{ Header, Signature, Body []byte }

// Split splits a message into its parts.
func Split(what string, b []byte) (Frame, error) {
	if len(b) < prefix || !bytes.Equal(b[:3], magic[:3]) {
		return Frame{}, errors.New("this is not a message of promptfed")
	}
	if b[3] != Version {
		return Frame{}, fmt.Errorf("the message has version %d, this program %d; use the same release on both sides",
			b[3], Version)
	}
	n, s := binary.LittleEndian.Uint32(b[4:]), int(binary.LittleEndian.Uint16(b[8:]))
	b = b[prefix:]
	if most := HeaderLimit(what); n > uint32(most) || s > certs.MaxSignature || int(n)+s > len(b) {
		return Frame{}, fmt.Errorf("the header states %d bytes and %d of signature; there are %d bytes, and at most "+
			"%d are allowed", n, s, len(b), most)
	}
	return Frame{b[:n], b[n : int(n)+s], b[int(n)+s:]}, nil
}

// Unpack verifies the signature and the certificate of a message's sender and decodes its header. Unknown fields are
// errors.
func Unpack(from certs.Verifier, what string, b []byte, header any) (body []byte, err error) {
	f, err := Split(what, b)
	if err != nil {
		return nil, err
	}
	if err := from.Valid(); err != nil {
		return nil, err
	}
	if !from.Verify(SigningDigest(what, f.Header), f.Signature) {
		return nil, certs.ErrForged
	}
	if err := DecodeStrict(f.Header, header); err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	return f.Body, nil
}

// DecodeStrict decodes one JSON value and nothing beside it.
func DecodeStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// Tensors decodes the tensors of a message after comparing them with its header.
func (c Content) Tensors(body []byte) (tensor.Map, error) {
	if err := c.compare(body); err != nil {
		return nil, err
	}
	m, err := message.DecodeTensors(body)
	if err != nil {
		return nil, err
	}
	return m, checkNames(m)
}

// TensorsAs decodes the tensors of a message, which must have these forms.
func (c Content) TensorsAs(body []byte, forms tensor.Specs) (tensor.Map, error) {
	if err := c.compare(body); err != nil {
		return nil, err
	}
	return message.DecodeTensorsAs(body, forms)
}

// compare reports tensors that differ from the header's description.
func (c Content) compare(body []byte) error {
	if len(body) != c.Size || Checksum(body) != c.Sum {
		return fmt.Errorf("%w: %d bytes, of %d", ErrDamaged, len(body), c.Size)
	}
	return nil
}

// ErrDamaged reports tensors that differ from their signed digest.
var ErrDamaged = errors.New("the tensors are damaged")
