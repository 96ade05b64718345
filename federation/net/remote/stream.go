package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"promptfed/federation/net/protocol"
	"promptfed/federation/net/wait"
)

// clientStream is a client's stream while it is connected. One goroutine receives, one sends, and the client's loop
// alone has its state.
type clientStream struct {
	*Client
	stream *connect.BidiStreamForClientSimple[protocol.ClientMessage, protocol.ServerMessage]
	in     chan *protocol.ServerMessage
	out    chan *protocol.ClientMessage // closed after the last message
	failed chan struct{}                // closed when the stream has ended
	why    error                        // its reason, from then on

	// messages to send: few, whatever the server asks for
	fetch *protocol.Fetch // a request for chunks of the instruction
	reply bool            // the reply of the task
	chunk *protocol.Fetch // the next chunk of the reply
}

// participate takes part over one stream. It returns nil when the run is over.
func (c *Client) participate(ctx context.Context) error {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx ends with a last message
	defer c.link.cut()
	defer cancel()
	stream, err := c.link.call.Participate(streamCtx)
	if err != nil {
		return err
	}
	s := &clientStream{Client: c, stream: stream, in: make(chan *protocol.ServerMessage),
		out: make(chan *protocol.ClientMessage), failed: make(chan struct{})}
	go s.receiveAll(streamCtx)
	go s.sendAll(streamCtx)
	if err := s.askToJoin(ctx); err != nil {
		return err
	}
	if c.lost {
		c.log.Info("connected again")
		c.lost = false
	}
	watch := time.NewTicker(time.Second)
	defer watch.Stop()
	for {
		next, sent := s.next()
		out := s.out
		if next == nil {
			out = nil
		}
		select {
		case out <- next:
			sent()
		case m := <-s.in:
			if err := s.handle(m); err != nil || s.task.delivered() {
				s.close(nil)
				return err
			}
		case r := <-s.task.finished():
			if err := s.task.finish(r); err != nil {
				return endError{err}
			}
			s.reply = true
		case <-s.failed:
			return s.why
		case <-watch.C:
			if err := c.link.checkServer(); err != nil {
				return err
			}
			if s.task.late() {
				return nil
			}
		case <-ctx.Done():
			s.close(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Leave{Leave: &protocol.Leave{}}})
			return ctx.Err()
		}
	}
}

// handle handles one message of the server.
func (s *clientStream) handle(m *protocol.ServerMessage) error {
	switch v := m.Kind.(type) {
	case *protocol.ServerMessage_Instruction:
		return s.receiveInstruction(v.Instruction)
	case *protocol.ServerMessage_Chunk:
		return s.receiveChunk(v.Chunk)
	case *protocol.ServerMessage_Fetch:
		if t := s.task; t != nil && t.reply != nil && t.reply.Content.Sum == v.Fetch.GetSum() {
			s.chunk = v.Fetch
		}
	case *protocol.ServerMessage_Receipt:
		if t := s.task; t != nil && v.Receipt.Id == t.Id {
			t.acknowledged = t.reply != nil && v.Receipt.Attempt == t.Attempt
		}
	}
	return nil
}

// next returns the next message to send, and the change when it is sent; nil for none.
func (s *clientStream) next() (m *protocol.ClientMessage, sent func()) {
	switch {
	case s.fetch != nil:
		return &protocol.ClientMessage{Kind: &protocol.ClientMessage_Fetch{Fetch: s.fetch}}, func() { s.fetch = nil }
	case s.reply:
		return &protocol.ClientMessage{Kind: &protocol.ClientMessage_Reply{Reply: s.task.message(s.limit)}},
			func() { s.reply = false }
	case s.chunk != nil:
		if c := chunkOf(s.task.body, s.chunk); c != nil {
			return &protocol.ClientMessage{Kind: &protocol.ClientMessage_Chunk{Chunk: c}}, func() { s.chunk = after(c) }
		}
	}
	return nil, nil
}

// receiveAll passes the server's messages on until the stream ends.
func (s *clientStream) receiveAll(ctx context.Context) {
	defer close(s.failed)
	for {
		m, err := s.stream.Receive()
		if err != nil {
			s.why = err
			return
		}
		select {
		case s.in <- m:
		case <-ctx.Done():
			s.why = ctx.Err()
			return
		}
	}
}

// sendAll sends messages until the last one, or until the stream ends.
func (s *clientStream) sendAll(ctx context.Context) {
	for {
		select {
		case m, more := <-s.out:
			if !more {
				s.stream.CloseRequest()
				return
			}
			if s.stream.Send(m) != nil { // receiveAll reports why
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask sends one message and returns the next one of the server.
func (s *clientStream) ask(ctx context.Context, m *protocol.ClientMessage) (*protocol.ServerMessage, error) {
	for out := s.out; ; {
		select {
		case out <- m:
			out = nil
		case m := <-s.in:
			return m, nil
		case <-s.failed:
			return nil, s.why
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close sends a last message, if any, and waits for a moment until the server has read it.
func (s *clientStream) close(last *protocol.ClientMessage) {
	over, out := time.After(time.Second), s.out
	if last == nil {
		close(s.out)
		out = nil
	}
	for {
		select {
		case out <- last:
			close(s.out)
			out = nil
		case <-s.in:
		case <-s.failed: // the server ended the stream, too
			return
		case <-over:
			return
		}
	}
}

// askToJoin asks until the server admits the client.
func (s *clientStream) askToJoin(ctx context.Context) error {
	for said := ""; ; {
		m, err := s.ask(ctx, &protocol.ClientMessage{Kind: &protocol.ClientMessage_Join{Join: s.join}})
		if err != nil {
			return err
		}
		switch v := m.GetAnswer(); {
		case v == nil:
			return errors.New("the server did not answer the request to join")
		case v.Ok:
			s.seq = v.Seq - 1 // the newest comes again
			s.log.Info("joined", "client", s.Invitation.Client)
			return s.joined(v)
		case !v.Later:
			return endError{fmt.Errorf("%w: %s", ErrRefused, protocol.Printable(v.Reason))}
		case v.Reason != said:
			said = v.Reason
			s.log.Info("not yet", "reason", protocol.Printable(said))
		}
		if err := wait.For(ctx, joinPause); err != nil {
			return err
		}
	}
}
