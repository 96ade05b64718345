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

	"promptfed/federation/engine"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// Version is of the messages. Both sides must have the same.
const Version = 1

// magic starts every message; the last byte is Version.
var magic = [4]byte{'P', 'F', 'L', Version}

// maxHeader bounds the JSON of a message.
const maxHeader = 16 << 10

// prefix is what stands before it: magic, its length (uint32, little endian) and the first half of its SHA-256, so that a damaged
// header is not taken for another.
const prefix = len(magic) + 4 + sha256.Size/2

// maxFrame bounds all of a message but its tensors.
const maxFrame = prefix + maxHeader

// order is the header of an order. Kinds are those of engine.Order, and end.
type order struct {
	Run      string `json:"run"`
	ID       string `json:"id"` // of what it asks
	Try      string `json:"try"`
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
	content
}

// endKind is the order that follows the last round.
const endKind = "end"

// reply is the header of a reply.
type reply struct {
	Run    string         `json:"run"`
	ID     string         `json:"id"` // of the order that it answers
	Try    string         `json:"try"`
	Client int            `json:"client"`
	Error  string         `json:"error,omitempty"` // why there is no answer
	N      int            `json:"n,omitempty"`
	Loss   float64        `json:"loss,omitempty"`
	Steps  int            `json:"steps,omitempty"`
	Scores *engine.Scores `json:"scores,omitempty"`
	content
}

// content tells of the tensors of a message.
type content struct {
	Size   int    `json:"size"`             // of their encoded form, in bytes
	Sum    string `json:"sum"`              // its SHA-256, the first half
	Object string `json:"object,omitempty"` // the object that they are in; they follow the header otherwise
}

func (c *content) of(body []byte) { c.Size, c.Sum = len(body), sum(body) }

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16])
}

// identity is the hash of all that an order asks of a client.
func (o order) identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %q %q %d %v %d %d %d %q", o.Run, o.Kind, o.Round, o.Survey, o.Exam, o.Steps, o.Counts, o.Client, o.Of, o.Size, o.Sum)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// headed is the header of an order to one client.
func headed(run string, o engine.Order, client int) order {
	return order{Run: run, Kind: string(o.Kind), Round: o.Round, Survey: o.Survey, Exam: o.Exam, Steps: o.Steps, Counts: o.Counts,
		Client: client, Of: o.Of}
}

// asked is the order that a header tells of, without its tensors.
func (o order) asked() engine.Order {
	return engine.Order{Kind: engine.Kind(o.Kind), Round: o.Round, Survey: o.Survey, Exam: o.Exam, Steps: o.Steps, Counts: o.Counts,
		Clients: []int{o.Client}, Of: o.Of}
}

// pack puts a header and what follows it together.
func pack(header any, body []byte) ([]byte, error) {
	text, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("a message's header: %w", err)
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("a message's header has %d bytes; at most %d are allowed", len(text), maxHeader)
	}
	check := sha256.Sum256(text)
	b := make([]byte, 0, prefix+len(text)+len(body))
	b = append(b, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, check[:sha256.Size/2]...)
	b = append(b, text...)
	return append(b, body...), nil
}

// unpack reads what pack wrote into a header; unknown fields are errors.
func unpack(b []byte, header any) (body []byte, err error) {
	if len(b) < prefix || !bytes.Equal(b[:3], magic[:3]) {
		return nil, errors.New("this is no message of promptfed")
	}
	if b[3] != Version {
		return nil, fmt.Errorf("the message has version %d, this program %d; use the same release on both sides", b[3], Version)
	}
	n := binary.LittleEndian.Uint32(b[4:])
	want, b := b[len(magic)+4:prefix], b[prefix:]
	if n > maxHeader || int(n) > len(b) {
		return nil, fmt.Errorf("the header is to have %d bytes; there are %d, and at most %d are allowed", n, len(b), maxHeader)
	}
	if check := sha256.Sum256(b[:n]); !bytes.Equal(check[:sha256.Size/2], want) {
		return nil, errors.New("the header is damaged")
	}
	if err := strict(b[:n], header); err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	return b[n:], nil
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
		return nil, fmt.Errorf("the tensors are damaged: %d bytes, of %d", len(body), c.Size)
	}
	m, err := wire.Decode(body)
	if err != nil {
		return nil, err
	}
	return m, checkNames(m)
}
