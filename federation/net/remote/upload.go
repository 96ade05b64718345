package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/protocol"
)

// receiveReply handles one reply: it counts, or is late or refused, or the server asks for its tensors.
func (s *session) receiveReply(ctx context.Context, r *protocol.Reply) error {
	s.mu.Lock()
	x := s.clients[s.client].pending
	if x != nil && x.Id != r.GetId() {
		x = nil
	}
	// a client whose failure is of an older attempt does not know of the newest one yet
	late := x == nil || r.Error != "" && x.Attempt != r.Attempt
	if late {
		s.totals.Late++
	}
	s.mu.Unlock()
	if late {
		s.log.Debug("a late or repeated reply is dropped")
		return s.answer(receipt(r))
	}
	if r.Error != "" {
		err := s.answer(receipt(r))
		s.recordFailure(s.client, x.Id, protocol.Printable(r.Error))
		return err
	}
	// an expected message that is no reply is the client's failure; the server does not wait for another
	err := protocol.CheckReply(r)
	if err == nil && int64(r.Content.Size) > x.most { // before any chunk is stored
		err = fmt.Errorf("%d bytes of tensors; at most %d are accepted", r.Content.Size, x.most)
	}
	if err != nil {
		return s.refuse(x, r, err)
	}
	if r.Content.Inline() {
		return s.complete(ctx, x, r, func() ([]byte, error) { return r.Content.Body, nil })
	}
	s.mu.Lock()
	if !x.upload.accepts(r.Content) { // it does after the connection was lost
		x.upload.close()
		x.upload = nil
		var f *os.File
		if f, err = temporaryFile(filepath.Join(s.set.Dir, piecesDir), "reply-*"); err == nil {
			x.upload = &partial{of: r.Content, file: f}
		}
	}
	var missing *protocol.Fetch
	if err == nil {
		x.reply, missing = r, x.upload.missing()
	}
	s.mu.Unlock()
	if err != nil {
		return s.refuse(x, r, fmt.Errorf("the server cannot store it: %w", err))
	}
	return s.answer(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Fetch{Fetch: missing}})
}

// receiveChunk stores a chunk of an announced reply; the last one completes the reply.
func (s *session) receiveChunk(c *protocol.Chunk) error {
	if len(c.Data) > chunkSize {
		return s.drop(fmt.Errorf("a chunk of %d bytes; at most %d are allowed", len(c.Data), chunkSize))
	}
	s.mu.Lock()
	x := s.clients[s.client].pending
	if x == nil || x.upload == nil || x.upload.of.Sum != c.Sum {
		s.mu.Unlock()
		return nil // of an instruction that is over
	}
	a, r := x.upload, x.reply
	err := a.write(c)
	done := err == nil && a.complete()
	if done {
		x.upload = nil
	}
	s.mu.Unlock()
	if errors.Is(err, errChunk) {
		return s.drop(fmt.Errorf("a chunk of a reply: %w", err))
	}
	if err != nil {
		return s.refuse(x, r, fmt.Errorf("the server cannot store it: %w", err))
	}
	if !done {
		return nil
	}
	defer a.close()
	return s.complete(context.Background(), x, r, a.body)
}

// complete decodes a reply with its tensors. Few of them are in memory as a whole at a time.
func (s *session) complete(ctx context.Context, x *pending, r *protocol.Reply, read func() ([]byte, error)) error {
	select {
	case s.decoding <- struct{}{}:
		defer func() { <-s.decoding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	size := protobuf.Size(r)
	body, err := read()
	if !r.Content.Inline() {
		size += len(body)
	}
	var answer message.Reply
	if err == nil {
		answer, err = s.decodeReply(x.of.instruction, x.forms, s.client, r, body)
	}
	if err != nil {
		return s.refuse(x, r, err)
	}
	err = s.answer(receipt(r)) // before the reply counts: the server may end with it
	s.record(s.client, x, answer, size)
	return err
}

// refuse refuses a reply for good.
func (s *session) refuse(x *pending, r *protocol.Reply, why error) error {
	err := s.answer(receipt(r))
	s.Server.refuse(s.client, x.Id, "its reply is refused: ", why)
	return err
}

func receipt(r *protocol.Reply) *protocol.ServerMessage {
	return &protocol.ServerMessage{Kind: &protocol.ServerMessage_Receipt{Receipt: &protocol.Receipt{Id: r.GetId(),
		Attempt: r.GetAttempt()}}}
}
