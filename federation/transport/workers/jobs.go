package workers

import (
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/transport/protocol"
	"promptfed/runtime/tensor"
)

// Info is a worker's request to take part.
type Info struct {
	protocol.JoinHeader
	Worker        string             `json:"worker"` // its name in subjects
	Host          string             `json:"host"`
	Jobs          int                `json:"jobs"` // at a time
	Compatibility spec.Compatibility `json:"footing"`
}

// Parts of the tensors of a job and of its result. A job has the header of an instruction, a result that of a reply.
const (
	orderPart = "order"
	statePart = "state"
	replyPart = "reply"
)

// encodeJob encodes an instruction to one client with the client's state.
func encodeJob(o message.Instruction, s message.ClientState) ([]byte, error) {
	return message.EncodeTensors(tensor.Map{}.Put(orderPart, o.Tensors()).Put(statePart, s.Tensors()))
}

// decodeJob decodes a job.
func decodeJob(h protocol.Instruction, body []byte) (message.Instruction, message.ClientState, error) {
	out := h.Message()
	m, err := h.Content.Tensors(body)
	if err == nil {
		err = onlyParts(m, orderPart, statePart)
	}
	if err != nil {
		return out, message.ClientState{}, err
	}
	if out, err = out.WithTensors(m.WithoutPrefix(orderPart)); err != nil {
		return out, message.ClientState{}, err
	}
	s, err := message.ParseClientState(m.WithoutPrefix(statePart))
	return out, s, err
}

// encodeResult encodes the tensors of a result; next is nil if the client's state is unchanged.
func encodeResult(r message.Reply, next *message.ClientState) tensor.Map {
	m := tensor.Map{}.Put(replyPart, r.Tensors())
	if next != nil {
		m.Put(statePart, next.Tensors())
	}
	return m
}

// decodeResult decodes the result of an instruction, and refuses results that no client could have.
func decodeResult(r protocol.Reply, o message.Instruction, body []byte) (message.Reply, *message.ClientState, error) {
	out := r.Message()
	m, err := r.Content.Tensors(body)
	if err == nil {
		err = onlyParts(m, replyPart, statePart)
	}
	if err == nil {
		out, err = o.WithReplyTensors(out, m.WithoutPrefix(replyPart))
	}
	if err == nil {
		err = o.Check(out)
	}
	if err != nil || o.Kind != message.Train {
		return out, nil, err
	}
	next, err := message.ParseClientState(m.WithoutPrefix(statePart))
	return out, &next, err
}

func onlyParts(m tensor.Map, a, b string) error {
	if len(m.WithoutPrefix(a))+len(m.WithoutPrefix(b)) != len(m) {
		return fmt.Errorf("a message has unexpected tensors, outside of %s and %s: %.200q", a, b, m.Names())
	}
	return nil
}
