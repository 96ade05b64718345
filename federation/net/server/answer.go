package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
	"promptfed/runtime/tensor"
)

// receive handles a reply: it counts, or is late or refused. An error means that the client must send it again.
func (h *Server) receive(call context.Context, client int, reply *wire.Reply, next func() (*wire.Part, error)) error {
	request := h.mail.box(client).pending

	// a client whose failure is of an older attempt does not know of the newest one yet
	if request == nil || request.Id != reply.Id || reply.Error != "" && request.Attempt != reply.Attempt {
		h.late(client)
		return nil
	}

	if reply.Error != "" {
		h.fail(client, request.collection, request.Id, wire.Printable(reply.Error), h.set.delay(request), nil)
		return nil
	}

	err := wire.CheckReply(reply)
	if err == nil && int64(reply.Content.Size) > request.most { // before any part is stored
		err = fmt.Errorf("%d bytes of tensors; at most %d are accepted", reply.Content.Size, request.most)
	}

	if err == nil && reply.Content.Inline() {
		return h.complete(call, client, request, reply, func() ([]byte, error) {
			return reply.Content.Body, reply.Content.CheckInline()
		})
	}

	if err != nil {
		h.refuse(client, request, "its reply is refused: ", err)
		return nil
	}
	defer afterEnd(request.over, func() { endReads(call) })()

	return h.receiveParts(call, client, request, reply, next)
}

// receiveParts receives the tensors of a reply into a file.
func (h *Server) receiveParts(call context.Context, client int, request *pending, reply *wire.Reply,
	next func() (*wire.Part, error)) error {
	file, err := os.CreateTemp(filepath.Join(h.set.Dir, piecesDir), "reply-*")
	if err == nil {
		defer file.Close()
		os.Remove(file.Name()) // where an open file cannot lose its name, the next start removes it
		var lost error
		err = reply.Content.ReceiveParts(file, func() (p *wire.Part, err error) {
			p, lost = next()
			return p, lost
		})

		if lost != nil && request.over.Err() != nil && call.Err() == nil {
			h.late(client)
			return nil
		}

		if lost != nil {
			return err
		}
	}

	if errors.Is(err, wire.ErrDamaged) {
		h.refuse(client, request, "its reply is refused: ", err)
		return nil
	}

	if err != nil {
		return h.unable(err)
	}

	return h.complete(call, client, request, reply, func() ([]byte, error) {
		b := make([]byte, reply.Content.Size)
		_, err := io.ReadFull(io.NewSectionReader(file, 0, int64(len(b))), b)
		return b, err
	})
}

// ownError is an error of the server's own files, as on a full disk. No client is refused for it.
type ownError struct{ error }

// unable logs an error of the server's own files, and returns what a client gets in its place: it calls again.
func (h *Server) unable(err error) error {
	h.troubles.Do(func() {
		h.set.Log.Error("the server cannot read or write a file of a client, which calls again", "error", err)
	})
	return connect.NewError(connect.CodeUnavailable, errors.New("the server cannot use its files; its log says why"))
}

// complete decodes a reply with its tensors. Few of them are in memory as a whole at a time.
func (h *Server) complete(call context.Context, client int, request *pending, reply *wire.Reply,
	read func() ([]byte, error)) error {
	select {
	case h.decoding <- struct{}{}:
		defer func() { <-h.decoding }()
	case <-request.over.Done():
	case <-call.Done():
		return context.Cause(call)
	}

	if request.over.Err() != nil {
		h.late(client)
		return nil
	}

	size := protobuf.Size(reply)
	body, err := read()
	if !reply.Content.Inline() {
		if err != nil {
			return h.unable(err)
		}
		size += len(body)
	}

	var answer message.Reply
	if err == nil {
		answer, err = h.decodeReply(request.collection.instruction, request.forms, client, reply, body)
	}

	if err != nil {
		h.refuse(client, request, "its reply is refused: ", err)
		return nil
	}

	h.record(client, request, answer, size)
	return nil
}

// decodeReply decodes a reply, whose tensors must have the forms of its instruction.
func (h *Server) decodeReply(instruction message.Instruction, forms tensor.Specs, client int, r *wire.Reply,
	body []byte) (
	message.Reply, error) {
	answer, err := r.Message(client)
	if err != nil {
		return answer, err
	}

	tensors, err := message.DecodeTensorsAs(body, forms)
	if err != nil {
		return answer, err
	}

	answer, err = instruction.WithReplyTensors(answer, tensors)
	answer.Up = answer.UploadSize()
	if err == nil && instruction.Kind != wire.EndKind {
		err = instruction.Check(answer)
	}

	if err == nil {
		err = instruction.CheckTerms(answer.Stats.Terms, h.terms, h.set.Method, h.taskOf(client))
	}

	if err == nil {
		err = h.checkReply(instruction, answer)
	}

	return answer, err
}

// late counts a reply to an instruction that is over, or that was answered.
func (h *Server) late(client int) {
	h.counts.change(func(c *counts) { c.Late++ })
	h.set.Log.Debug("a late or repeated reply is dropped", "client", client)
}

// record accepts a reply, once.
func (h *Server) record(client int, request *pending, r message.Reply, size int) {
	r.Down = len(request.body)
	again := false
	counted := request.collection.accept(r, func() {
		h.counts.change(func(c *counts) {
			k := &c.clients[client]
			again = k.miss(-1)
			k.took = h.set.delay(request)
			k.replies++
			k.up += int64(size)
			c.BytesUp += int64(size)
			c.Replies++
		})
	})

	if !counted {
		h.late(client)
		return
	}

	if again {
		h.set.Log.Info("a client answers again; rounds wait for it", "client", client, "round",
			request.collection.instruction.Round+1)
	}

	h.mail.finish(client, request.collection)
	if h.set.OnReply != nil {
		h.set.OnReply(request.collection.instruction, client)
	}

	notify(request.collection.wake)
}

// refuse records that a client has no answer to an instruction, since its reply is refused.
func (h *Server) refuse(client int, x *pending, what string, why error) {
	h.fail(client, x.collection, x.Id, what+wire.Printable(why.Error()), h.set.delay(x), why)
}

// fail records that a client has no answer to an instruction, or with an empty identity to any of a collection, after
// a delay of Settings.delay. refused is why its reply is refused; nil if there is none. It is not recorded of a client
// that has answered.
func (h *Server) fail(client int, open *collection, id, why string, delay int, refused error) {
	failed := open.fail(client, id, why, func() { // before the instruction may end
		h.counts.change(func(c *counts) {
			c.refuse(client)
			if refused != nil {
				c.recordRefusal(client, refused)
			}
		})
		h.delayed(client, open.instruction.Round, delay)
		h.set.Log.Warn("no answer", "client", client, "reason", why)
	})

	if failed {
		h.mail.finish(client, open)
		notify(open.wake)
	}
}

// Rejected reports an upload on which the method failed.
func (h *Server) Rejected(round, client int, why error) {
	if client < 0 || client >= len(h.callers) {
		return
	}

	took := 0
	h.counts.change(func(c *counts) {
		c.refuse(client)
		c.recordRefusal(client, why)
		took, c.clients[client].took = c.clients[client].took, 0
	})

	h.delayed(client, round, took)
	h.set.Log.Warn("an upload is ignored", "round", round+1, "client", client, "reason", wire.Printable(why.Error()))
}
