package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	jsonv2 "github.com/go-json-experiment/json"
	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/runtime/tensor"
)

// Limits of messages.
const (
	MaxExamples = 1 << 53   // of a client; larger numbers have no exact float64
	MaxText     = 500       // bytes of a text from the other side
	MaxScores   = 16 << 10  // bytes of statistics of a test
	MaxTerms    = 256 << 10 // bytes of measurements of loss terms
	// MaxControl is the largest size of a message without its tensors, in bytes. A request to join lists the classes.
	MaxControl = 4 << 20

	maxTensors = 4096
	maxRound   = 1 << 30
)

var (
	tensorName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
	sumText    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// Label matches the names in messages that logs and pages show, such as domains and evaluation sets: at most 100
	// printable ASCII characters, maybe none.
	Label = regexp.MustCompile(`^[A-Za-z0-9_ .,:/()-]{0,100}$`)
)

// CheckInstruction reports an instruction that no server sends.
func CheckInstruction(instruction *Instruction) error {
	instruction = protobuf.ValueOrDefault(instruction)
	switch k := message.Kind(instruction.Kind); {
	case k != message.Train && k != message.Compute && !k.Tests() && k != EndKind:
		return fmt.Errorf("unknown kind of instruction %.50q", k)
	case instruction.Round < 0 || instruction.Round > maxRound || instruction.Client < 0 ||
		instruction.Client >= instruction.Total || instruction.Total > certs.MaxClients:
		return fmt.Errorf("invalid round %d for client %d of %d", instruction.Round+1, instruction.Client,
			instruction.Total)
	case instruction.Steps < 0 || instruction.Steps > maxRound:
		return fmt.Errorf("invalid number of steps %d", instruction.Steps)
	case !Label.MatchString(instruction.Statistic) || !Label.MatchString(instruction.Set):
		return fmt.Errorf("statistic %.50q or evaluation set %.50q is not a name", instruction.Statistic,
			instruction.Set)
	case instruction.Id != IdentityOf(instruction):
		return errors.New("the instruction is damaged: it does not match its identity")
	case !ID.MatchString(instruction.Run) || !ID.MatchString(instruction.Attempt):
		return fmt.Errorf("%.50q or %.50q is not an identity", instruction.Run, instruction.Attempt)
	}

	for _, id := range []string{instruction.Accepted, instruction.Safe} {
		if id != "" && !ID.MatchString(id) {
			return fmt.Errorf("%.50q is not an identity", id)
		}
	}

	return checkContent(instruction.Content)
}

// CheckReply reports a reply that no client sends.
func CheckReply(reply *Reply) error {
	reply = protobuf.ValueOrDefault(reply)
	switch {
	case !ID.MatchString(reply.Id) || !ID.MatchString(reply.Attempt):
		return fmt.Errorf("%.50q or %.50q is not an identity", reply.Id, reply.Attempt)
	case reply.Examples < 0 || reply.Examples > MaxExamples || reply.Steps < 0 || reply.Steps > maxRound:
		return fmt.Errorf("invalid counts: %d examples, %d steps", reply.Examples, reply.Steps)
	case len(reply.Scores) > MaxScores:
		return fmt.Errorf("%d bytes of statistics; at most %d are allowed", len(reply.Scores), MaxScores)
	case len(reply.Terms) > MaxTerms:
		return fmt.Errorf("%d bytes of loss terms; at most %d are allowed", len(reply.Terms), MaxTerms)
	}

	return checkContent(reply.Content)
}

func checkContent(c *Content) error {
	c = protobuf.ValueOrDefault(c)
	if c.Size > 1<<40 || !sumText.MatchString(c.Sum) {
		return fmt.Errorf("the description of the tensors is invalid: %d bytes, checksum %.50q", c.Size, c.Sum)
	}
	return nil
}

// Inline reports whether a message holds its tensors.
func (c *Content) Inline() bool { return uint64(len(c.Body)) == c.Size }

// ReplyOf returns the reply to an instruction of a kind, and its encoded tensors. Its identities are not set.
func ReplyOf(kind message.Kind, out message.Reply) (reply *Reply, body []byte, err error) {
	reply = &Reply{Examples: int64(out.Upload.N), Loss: out.Stats.Loss, Steps: int64(out.Stats.Steps)}
	if kind.Tests() {
		reply.Scores, err = json.Marshal(out.Scores)
	} else if out.Stats.Terms != nil {
		reply.Terms, err = json.Marshal(out.Stats.Terms)
	}

	if err != nil {
		return nil, nil, err
	}

	if body, err = message.EncodeTensors(out.Tensors()); err != nil {
		return nil, nil, err
	}

	reply.Content = ContentOf(body)
	return reply, body, nil
}

// Message returns the reply of a client for the engine, without its tensors.
func (r *Reply) Message(client int) (message.Reply, error) {
	out := message.Reply{Client: client, Stats: message.Stats{Loss: r.Loss, Steps: int(r.Steps)}}
	out.Upload.Client, out.Upload.N = client, int(r.Examples)
	if len(r.Terms) > 0 {
		if err := DecodeStrict(r.Terms, &out.Stats.Terms); err != nil {
			return out, fmt.Errorf("the terms of the loss: %w", err)
		}
	}

	if len(r.Scores) == 0 {
		return out, nil
	}

	if err := DecodeStrict(r.Scores, &out.Scores); err != nil {
		return out, fmt.Errorf("the statistics of the test: %w", err)
	}

	return out, nil
}

// DecodeStrict decodes one JSON value and nothing beside it. Unknown and repeated fields are errors.
func DecodeStrict(b []byte, into any) error {
	return jsonv2.Unmarshal(b, into, jsonv2.RejectUnknownMembers(true))
}

// CheckInline compares the tensors inside a message with their description.
func (c *Content) CheckInline() error {
	if Checksum(c.Body) != c.Sum {
		return fmt.Errorf("%w: %d bytes with another checksum", ErrDamaged, c.Size)
	}
	return nil
}

// Tensors decodes tensors whose names are not known, but must be plain.
func Tensors(body []byte) (tensor.Map, error) {
	m, err := message.DecodeTensors(body)
	if err != nil {
		return nil, err
	}
	return m, checkNames(m)
}

// checkNames refuses names of tensors with characters that have another meaning elsewhere.
func checkNames(m tensor.Map) error {
	if len(m) > maxTensors {
		return fmt.Errorf("%d tensors; at most %d are allowed", len(m), maxTensors)
	}

	for name := range m {
		if len(name) > 200 || !tensorName.MatchString(name) || strings.Contains(name, "..") {
			return fmt.Errorf("tensor %.100q: a name has letters, digits, _, -, . and single slashes between them",
				name)
		}
	}

	return nil
}

// Printable returns text from the other side as one printable line.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)

	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "") + "..."
	}

	return text
}
