// Package protocol is what the sides of a run say to each other: headers in JSON, signed, with encoded tensors behind
// them, and the bounds that every message is held to.
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
	"promptfed/federation/transport/certs"
	"promptfed/runtime/tensor"
)

// Version is of the protocol. Both sides must have the same.
const Version = 6

// magic starts every message; the last byte is Version.
var magic = [4]byte{'P', 'F', 'L', Version}

// maxHeader bounds the JSON of an order or a reply, maxControl that of all others.
const (
	maxHeader  = 16 << 10
	maxControl = 4 << 20
)

// prefix is what comes before it: magic, the length of the header (uint32, little endian) and that of its signature
// (uint16).
const prefix = len(magic) + 4 + 2

// MaxFrame bounds all of a message but its tensors.
const MaxFrame = prefix + maxHeader + certs.MaxSignature

// What a message is. It is part of what is signed, so that none is taken for one of another kind.
const (
	HelloMessage     = "hello"
	JoinMessage      = "join"
	JoinReplyMessage = "verdict"
	HeartbeatMessage = "beat"
	OrderMessage     = "order"
	ReplyMessage     = "reply"
	ReceiptMessage   = "receipt"
)

// Order is the header of an order. Kinds are those of message.Instruction, and end.
type Order struct {
	Run       string `json:"run"`
	ID        string `json:"id"`  // of what it asks
	Try       string `json:"try"` // of this time that it is given
	Seq       int64  `json:"seq,omitempty"`
	Kind      string `json:"kind"`
	Round     int    `json:"round"`
	Statistic string `json:"survey,omitempty"`
	Set       string `json:"exam,omitempty"`
	Steps     int    `json:"steps,omitempty"`
	Confusion bool   `json:"counts,omitempty"`
	Client    int    `json:"client"`
	Total     int    `json:"of"`
	Accepted  string `json:"accepted,omitempty"` // the order whose upload of this client counts last
	Safe      string `json:"safe,omitempty"`     // likewise, as the server's last checkpoint has it
	To        string `json:"to,omitempty"`       // address of the worker's job that it is for
	Content
}

// EndKind is the order that follows the last round.
const EndKind = "end"

// Reply is the header of a reply.
type Reply struct {
	Run    string          `json:"run"`
	ID     string          `json:"id"` // of the order that it answers
	Try    string          `json:"try"`
	Client int             `json:"client"`
	Error  string          `json:"error,omitempty"` // why there is no answer
	N      int             `json:"n,omitempty"`
	Loss   float64         `json:"loss,omitempty"`
	Steps  int             `json:"steps,omitempty"`
	Scores *message.Scores `json:"scores,omitempty"`
	Content
}

// Message is what a reply's header says, without its tensors.
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
	Size   int    `json:"size"`             // of their encoded form, in bytes
	Sum    string `json:"sum"`              // its SHA-256
	Object string `json:"object,omitempty"` // under what they are found; they follow the header otherwise
}

func (c *Content) SetBody(body []byte) { c.Size, c.Sum = len(body), Checksum(body) }

func Checksum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// Detach notes that the tensors do not follow the header.
func (c *Content) Detach() { c.Object = c.Sum[:32] }

// Identity is the hash of all that an order asks of a client, whoever does it.
func (o Order) Identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %q %q %d %v %d %d %d %q", o.Run, o.Kind, o.Round, o.Statistic, o.Set, o.Steps, o.Confusion,
		o.Client, o.Total, o.Size, o.Sum)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// OrderFor is the header of an order to one client.
func OrderFor(run string, o message.Instruction, client int) Order {
	return Order{Run: run, Kind: string(o.Kind), Round: o.Round, Statistic: o.Statistic, Set: o.Set, Steps: o.Steps,
		Confusion: o.Confusion, Client: client, Total: o.Total}
}

// Instruction is the order that a header describes, without its tensors.
func (o Order) Instruction() message.Instruction {
	return message.Instruction{Kind: message.Kind(o.Kind), Round: o.Round, Statistic: o.Statistic, Set: o.Set,
		Steps: o.Steps, Confusion: o.Confusion, Clients: []int{o.Client}, Total: o.Total}
}

// HeaderLimit is how long the header of a message may be.
func HeaderLimit(what string) int {
	switch what {
	case OrderMessage, ReplyMessage:
		return maxHeader
	}
	return maxControl
}

// Pack puts a header, signed by whoever sends it, and what follows it together. The header names the digest of what
// follows, so that the signature is one of all.
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

// SigningDigest is what is signed.
func SigningDigest(what string, header []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "promptfed %d %s\n", Version, what)
	h.Write(header)
	return h.Sum(nil)
}

// Frame is a message taken apart; nobody looked at its signature yet.
type Frame struct{ Header, Signature, Body []byte }

// Split takes a message apart.
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

// Unpack reads what Pack wrote into a header, once its signature is found to be that of whom it should come from, whose
// certificate counts still; unknown fields are errors.
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

// Tensors decodes the content of a message after comparing it with what its header says.
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

// TensorsAs is Tensors of a message that can have no other tensors than these.
func (c Content) TensorsAs(body []byte, forms tensor.Forms) (tensor.Map, error) {
	if err := c.compare(body); err != nil {
		return nil, err
	}
	return message.DecodeTensorsAs(body, forms)
}

// compare finds that the content of a message is not what its header says.
func (c Content) compare(body []byte) error {
	if len(body) != c.Size || Checksum(body) != c.Sum {
		return fmt.Errorf("%w: %d bytes, of %d", ErrDamaged, len(body), c.Size)
	}
	return nil
}

// ErrDamaged is the error of tensors that are not those that their header was signed with.
var ErrDamaged = errors.New("the tensors are damaged")
