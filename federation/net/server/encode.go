package server

import (
	"context"
	"fmt"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/net/wire"
	"promptfed/runtime/tensor"
)

// encoded is the tensors of an instruction, as they are sent.
type encoded struct {
	content *wire.Content // without the tensors
	body    []byte
}

// encode encodes the tensors of an instruction.
func (h *Server) encode(instruction message.Instruction) (encoded, error) {
	body, err := message.EncodeTensors(instruction.Tensors())
	if err == nil && len(body) > h.set.Largest {
		err = fmt.Errorf("%d bytes of tensors; at most %d are possible (--largest)", len(body), h.set.Largest)
	}

	if err != nil {
		return encoded{}, err
	}

	return encoded{wire.ContentOf(body), body}, nil
}

// tensors returns the encoded tensors of the instruction to a client. Tensors for all clients are encoded once. An
// error of the tensors for this client alone is its own.
func (c *collection) tensors(h *Server, client int) (what encoded, own, err error) {
	instruction := c.instruction.ForClient(client)
	if len(instruction.PerClient) > 0 {
		if what, own = h.encode(instruction); own == nil {
			return what, nil, nil
		}
		instruction.PerClient = nil
	}

	if c.common.content == nil {
		c.common, err = h.encode(instruction)
	}

	return c.common, own, err
}

// forms returns the forms of a client's reply to an instruction, and the size of the largest such reply, in bytes.
func (h *Server) forms(instruction message.Instruction, client int) (forms tensor.Specs, most int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the method cannot use its backbone: %v", p)
		}
	}()

	forms = instruction.ReplySpecs(h.set.Method, h.taskOf(client))
	_, most, err = message.MaxEncodedSize(forms)
	return forms, most, err
}

// taskOf returns the sizes of a client as it joined.
func (h *Server) taskOf(client int) method.ClientSpec {
	return h.members.client(client).Participant.Task
}

// send sends one client its instruction, or records why there is none for it.
func (h *Server) send(collection *collection, client int) error {
	what, own, err := collection.tensors(h, client)
	if own != nil {
		collection.large++
	}

	if collection.large > 1 &&
		collection.large == len(collection.instruction.Clients) { // --largest is too small for this run
		err = own
	}

	if err != nil {
		return err
	}

	request := &pending{body: what.body, collection: collection,
		Instruction: wire.InstructionFor(h.set.ID, collection.instruction, client, h.set.Clients, what.content)}
	if err = own; err == nil {
		request.forms, request.most, err = h.forms(collection.instruction, client)
	}

	request.most = min(request.most, int64(h.set.Largest))
	collection.give(client, request.Id)
	if err != nil {
		h.refuse(client, request, "no instruction of its task is possible: ", err)
		return nil
	}

	h.mail.deliver(client, request)
	return nil
}

// Finish sends all clients the final shared parameters; each then stores its own part. It waits for them until the
// deadline.
func (h *Server) Finish(ctx context.Context, rounds int, prompts func(client int) (shared, down tensor.Map,
	err error)) error {
	instruction := message.Instruction{Kind: wire.EndKind, Round: rounds, Total: h.set.Clients,
		PerClient: map[int]tensor.Map{}}
	for k := range h.set.Clients {
		shared, down, err := prompts(k)
		if err != nil {
			return err
		}
		instruction.Clients = append(instruction.Clients, k)
		instruction.Shared = shared
		if len(down) > 0 {
			instruction.PerClient[k] = down
		}
	}

	_, err := h.collect(ctx, instruction, 0, 1)
	return err
}
