package transport

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
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// Version is of the messages. Both sides must have the same.
const Version = 3

// magic starts every message; the last byte is Version.
var magic = [4]byte{'P', 'F', 'L', Version}

// maxHeader bounds the JSON of an order or a reply, maxControl that of all others.
const (
	maxHeader  = 16 << 10
	maxControl = 4 << 20
)

// prefix is what stands before it: magic, the length of the header (uint32, little endian) and that of its signature
// (uint16).
const prefix = len(magic) + 4 + 2

// maxFrame bounds all of a message but its tensors.
const maxFrame = prefix + maxHeader + maxSignature

// What a message is. It is part of what is signed, so that none is taken for one of another kind.
const (
	helloMessage   = "hello"
	joinMessage    = "join"
	verdictMessage = "verdict"
	beatMessage    = "beat"
	orderMessage   = "order"
	replyMessage   = "reply"
	receiptMessage = "receipt"
)

// order is the header of an order. Kinds are those of engine.Order, and end.
type order struct {
	Run      string `json:"run"`
	ID       string `json:"id"`  // of what it asks
	Try      string `json:"try"` // of this time that it is given
	Seq      int64  `json:"seq,omitempty"`
	Kind     string `json:"kind"`
	Round    int    `json:"round"`
	Survey   string `json:"survey,omitempty"`
	Exam     string `json:"exam,omitempty"`
	Steps    int    `json:"steps,omitempty"`
	Counts   bool   `json:"counts,omitempty"`
	Client   int    `json:"client"`
	Of       int    `json:"of"`
	Accepted string `json:"accepted,omitempty"` // the order whose upload of this client counts last
	Safe     string `json:"safe,omitempty"`     // likewise, as the server's last checkpoint has it
	To       string `json:"to,omitempty"`       // address of the worker's job that it is for
	content
}

// endKind is the order that follows the last round.
const endKind = "end"

// reply is the header of a reply.
type reply struct {
	Run    string          `json:"run"`
	ID     string          `json:"id"` // of the order that it answers
	Try    string          `json:"try"`
	Client int             `json:"client"`
	Error  string          `json:"error,omitempty"` // why there is no answer
	N      int             `json:"n,omitempty"`
	Loss   float64         `json:"loss,omitempty"`
	Steps  int             `json:"steps,omitempty"`
	Scores *message.Scores `json:"scores,omitempty"`
	content
}

// content tells of the tensors of a message.
type content struct {
	Size   int    `json:"size"`             // of their encoded form, in bytes
	Sum    string `json:"sum"`              // its SHA-256
	Object string `json:"object,omitempty"` // under what they are to be had; they follow the header otherwise
}

func (c *content) of(body []byte) { c.Size, c.Sum = len(body), sum(body) }

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// away notes that the tensors do not follow the header.
func (c *content) away() { c.Object = c.Sum[:32] }

// identity is the hash of all that an order asks of a client, whoever does it.
func (o order) identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %q %q %d %v %d %d %d %q", o.Run, o.Kind, o.Round, o.Survey, o.Exam, o.Steps, o.Counts,
		o.Client, o.Of, o.Size, o.Sum)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// headed is the header of an order to one client.
func headed(run string, o message.Instruction, client int) order {
	return order{Run: run, Kind: string(o.Kind), Round: o.Round, Survey: o.Statistic, Exam: o.Set, Steps: o.Steps,
		Counts: o.Confusion,
		Client: client, Of: o.Total}
}

// asked is the order that a header tells of, without its tensors.
func (o order) asked() message.Instruction {
	return message.Instruction{Kind: message.Kind(o.Kind), Round: o.Round, Statistic: o.Survey, Set: o.Exam,
		Steps:     o.Steps,
		Confusion: o.Counts,
		Clients:   []int{o.Client}, Total: o.Of}
}

// headerLimit is how long the header of a message may be.
func headerLimit(what string) int {
	switch what {
	case orderMessage, replyMessage:
		return maxHeader
	}
	return maxControl
}

// pack puts a header, signed by whoever sends it, and what follows it together. The header names the digest of what
// follows, so that the signature is one of all.
func pack(by signer, what string, header any, body []byte) ([]byte, error) {
	text, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("a message's header: %w", err)
	}
	if most := headerLimit(what); len(text) > most {
		return nil, fmt.Errorf("a message's header has %d bytes; at most %d are allowed", len(text), most)
	}
	signature, err := by.sign(digest(what, text))
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

// digest is what is signed.
func digest(what string, header []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "promptfed %d %s\n", Version, what)
	h.Write(header)
	return h.Sum(nil)
}

// frame is a message taken apart; nobody looked at its signature yet.
type frame struct{ header, signature, body []byte }

// split takes a message apart.
func split(what string, b []byte) (frame, error) {
	if len(b) < prefix || !bytes.Equal(b[:3], magic[:3]) {
		return frame{}, errors.New("this is no message of promptfed")
	}
	if b[3] != Version {
		return frame{}, fmt.Errorf("the message has version %d, this program %d; use the same release on both sides",
			b[3], Version)
	}
	n, s := binary.LittleEndian.Uint32(b[4:]), int(binary.LittleEndian.Uint16(b[8:]))
	b = b[prefix:]
	if most := headerLimit(what); n > uint32(most) || s > maxSignature || int(n)+s > len(b) {
		return frame{}, fmt.Errorf("the header is to have %d bytes and %d of signature; there are %d, and at most %d "+
			"are allowed", n, s, len(b), most)
	}
	return frame{b[:n], b[n : int(n)+s], b[int(n)+s:]}, nil
}

// unpack reads what pack wrote into a header, once its signature is found to be that of whom it should come from, whose
// certificate counts still; unknown fields are errors.
func unpack(from verifier, what string, b []byte, header any) (body []byte, err error) {
	f, err := split(what, b)
	if err != nil {
		return nil, err
	}
	if err := from.current(); err != nil {
		return nil, err
	}
	if !from.verify(digest(what, f.header), f.signature) {
		return nil, errForged
	}
	if err := strict(f.header, header); err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	return f.body, nil
}

// strict decodes one JSON value and nothing beside it.
func strict(b []byte, into any) error {
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

// tensors decodes the content of a message after comparing it with what its header says.
func (c content) tensors(body []byte) (tensor.Map, error) {
	if len(body) != c.Size || sum(body) != c.Sum {
		return nil, fmt.Errorf("%w: %d bytes, of %d", errDamaged, len(body), c.Size)
	}
	m, err := wire.Decode(body)
	if err != nil {
		return nil, err
	}
	return m, checkNames(m)
}

// errDamaged tells of tensors that are not those that their header was signed with.
var errDamaged = errors.New("the tensors are damaged")
