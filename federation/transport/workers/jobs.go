package workers

import (
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/transport/protocol"
	"promptfed/runtime/tensor"
)

// Info is what a worker says of itself to take part.
type Info struct {
	protocol.JoinHeader
	Worker        string             `json:"worker"` // in subjects
	Host          string             `json:"host"`
	Jobs          int                `json:"jobs"` // at a time
	Compatibility spec.Compatibility `json:"footing"`
}

// Parts of the tensors of a job and of its result. A job's header is that of an order, a result's that of a reply.
const (
	orderPart = "order"
	statePart = "state"
	replyPart = "reply"
)

// encodeJob is an order to one client with what that client remembers.
func encodeJob(o message.Instruction, s message.ClientState) ([]byte, error) {
	return message.EncodeTensors(tensor.Map{}.Put(orderPart, o.Tensors()).Put(statePart, s.Tensors()))
}

// decodeJob reads what encodeJob gave.
func decodeJob(h protocol.Order, body []byte) (message.Instruction, message.ClientState, error) {
	out := h.Instruction()
	m, err := h.Content.Tensors(body)
	if err == nil {
		err = onlyParts(m, orderPart, statePart)
	}
	if err != nil {
		return out, message.ClientState{}, err
	}
	if out, err = out.With(m.Under(orderPart)); err != nil {
		return out, message.ClientState{}, err
	}
	s, err := message.ParseClientState(m.Under(statePart))
	return out, s, err
}

// encodeResult is the tensors of what a job gave; next is nil where the client remembers what it did before.
func encodeResult(r message.Reply, next *message.ClientState) tensor.Map {
	m := tensor.Map{}.Put(replyPart, r.Tensors())
	if next != nil {
		m.Put(statePart, next.Tensors())
	}
	return m
}

// decodeResult reads what encodeResult gave in answer to an order, and refuses what no client of it could give.
func decodeResult(r protocol.Reply, o message.Instruction, body []byte) (message.Reply, *message.ClientState, error) {
	out := r.Message()
	m, err := r.Content.Tensors(body)
	if err == nil {
		err = onlyParts(m, replyPart, statePart)
	}
	if err == nil {
		out, err = o.Read(out, m.Under(replyPart))
	}
	if err == nil {
		err = o.Check(out)
	}
	if err != nil || o.Kind != message.Train {
		return out, nil, err
	}
	next, err := message.ParseClientState(m.Under(statePart))
	return out, &next, err
}

func onlyParts(m tensor.Map, a, b string) error {
	if len(m.Under(a))+len(m.Under(b)) != len(m) {
		return fmt.Errorf("a message has unexpected tensors, outside of %s and %s: %.200q", a, b, m.Names())
	}
	return nil
}
