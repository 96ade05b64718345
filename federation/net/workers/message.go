package workers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// Headers of a NATS message: the identity of a job, and a job or a result as JSON. Small tensors are the message's
// data.
const (
	idHeader   = "Promptfed-Job"
	jsonHeader = "Promptfed-Message"
)

// content describes encoded tensors: a part of the message's data, or an object.
type content struct {
	Size   int    `json:"size"`
	Object string `json:"object,omitempty"` // its name in the object store
	Digest string `json:"digest,omitempty"` // SHA-256 of an object that several jobs share
}

// job is an instruction to one client, with the client's state.
type job struct {
	Instruction message.Instruction `json:"instruction"` // without tensors
	Common      content             `json:"common"`      // tensors that all clients of the instruction get
	Own         content             `json:"own"`         // the client's extras and state
}

// result is a worker's answer to a job.
type result struct {
	Host       string        `json:"host,omitempty"` // of the worker
	Reply      message.Reply `json:"reply"`          // without tensors
	Error      string        `json:"error,omitempty"`
	Fatal      bool          `json:"fatal,omitempty"` // the job would fail on every worker
	Deliveries int           `json:"deliveries"`      // of the job
	Tensors    content       `json:"tensors"`
}

// pack returns a message with a header as JSON and parts of encoded tensors.
func pack(subject, id string, header any, parts ...[]byte) (*nats.Msg, error) {
	text, err := json.Marshal(header)
	if err != nil {
		return nil, fmt.Errorf("a message's header: %w", err)
	}

	return &nats.Msg{Subject: subject, Header: nats.Header{idHeader: {id}, jsonHeader: {string(text)}},
		Data: slices.Concat(parts...)}, nil
}

// unpack decodes the header of a message.
func unpack(h nats.Header, header any) error {
	if err := json.Unmarshal([]byte(h.Get(jsonHeader)), header); err != nil {
		return fmt.Errorf("a message's header: %w", err)
	}
	return nil
}

// Parts of the tensors of a job and of its result.
const (
	instructionPart = "instruction"
	statePart       = "state"
	replyPart       = "reply"
)

// withoutTensors returns the instruction as a header.
func withoutTensors(instruction message.Instruction) message.Instruction {
	instruction.Shared, instruction.Broadcast, instruction.PerClient, instruction.Guarded, instruction.Codec,
		instruction.Classes = nil, nil, nil, nil, nil, 0
	return instruction
}

// encodeCommon encodes the tensors that all clients of an instruction get.
func encodeCommon(instruction message.Instruction) ([]byte, error) {
	instruction.Clients = nil
	return message.EncodeTensors(instruction.Tensors())
}

// encodeOwn encodes the tensors that one client alone gets, and its state.
func encodeOwn(instruction message.Instruction, s message.ClientState) ([]byte, error) {
	instruction.Shared, instruction.Broadcast = nil, nil
	return message.EncodeTensors(tensor.Map{}.Put(instructionPart, instruction.Tensors()).Put(statePart, s.Tensors()))
}

// decodeJob returns the instruction and the state of a job from its header and its tensors.
func decodeJob(instruction message.Instruction, common tensor.Map, own []byte) (message.Instruction,
	message.ClientState, error) {
	parts, err := decode(own, instructionPart, statePart)
	if err != nil {
		return instruction, message.ClientState{}, err
	}

	all := parts.WithoutPrefix(instructionPart)
	maps.Copy(all, common)
	if instruction, err = instruction.WithTensors(all); err != nil {
		return instruction, message.ClientState{}, err
	}

	s, err := message.ParseClientState(parts.WithoutPrefix(statePart))
	return instruction, s, err
}

// encodeResult returns the header of a reply and its encoded tensors. next is nil if the client's state is unchanged.
func encodeResult(r message.Reply, next *message.ClientState) (message.Reply, []byte, error) {
	m := tensor.Map{}.Put(replyPart, r.Tensors())
	if next != nil {
		m.Put(statePart, next.Tensors())
	}

	b, err := message.EncodeTensors(m)
	header := message.Reply{Client: r.Client, Upload: method.Upload{Client: r.Upload.Client, N: r.Upload.N},
		Stats: r.Stats, Scores: r.Scores}
	return header, b, err
}

// decodeResult returns the reply to an instruction and the client's next state. It refuses replies that no client could
// have sent.
func decodeResult(instruction message.Instruction, reply message.Reply, tensors []byte) (message.Reply,
	*message.ClientState, error) {
	parts, err := decode(tensors, replyPart, statePart)
	if err == nil {
		reply, err = instruction.WithReplyTensors(reply, parts.WithoutPrefix(replyPart))
	}

	if err == nil && (reply.Client != instruction.Clients[0] || instruction.Kind == message.Train &&
		reply.Upload.Client != reply.Client) {
		err = fmt.Errorf("the result is of client %d, with an upload of client %d", reply.Client, reply.Upload.Client)
	}

	if err == nil {
		err = instruction.Check(reply)
	}

	if err != nil || instruction.Kind != message.Train {
		return reply, nil, err
	}

	next, err := message.ParseClientState(parts.WithoutPrefix(statePart))
	return reply, &next, err
}

// decode decodes tensors with two parts.
func decode(b []byte, first, second string) (tensor.Map, error) {
	m, err := message.DecodeTensors(b)
	if err == nil {
		err = message.OnlyUnder(m, first, second)
	}
	return m, err
}
