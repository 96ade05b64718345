package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"promptfed/federation/net/protocol"
)

// clientStream is a client's stream while it is connected.
type clientStream struct {
	*Client
	stream *connect.BidiStreamForClientSimple[protocol.ClientMessage, protocol.ServerMessage]
	in     chan *protocol.ServerMessage
	failed chan struct{} // closed when the stream has ended
	why    error         // its reason, from then on
	ctx    context.Context

	sending sync.Mutex // one message at a time
	due     due        // messages to send
}

// participate takes part over one stream. joined is called when the server has admitted the client. It returns nil when
// the run is over.
func (c *Client) participate(ctx context.Context, joined func()) error {
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx ends with a last message
	defer c.link.cut()
	defer cancel()
	stream, err := c.link.call.Participate(streamCtx)
	if err != nil {
		return err
	}
	s := &clientStream{Client: c, stream: stream, in: make(chan *protocol.ServerMessage), failed: make(chan struct{}),
		ctx: streamCtx, due: due{wake: make(chan struct{}, 1)}}
	go s.receiveAll()
	go s.sendAll()
	if err := s.askToJoin(ctx); err != nil {
		return err
	}
	joined()
	watch := time.NewTicker(time.Second)
	defer watch.Stop()
	for {
		select {
		case m := <-s.in:
			if err := s.handle(m); err != nil || s.task.delivered() {
				s.close(nil)
				return err
			}
		case err := <-s.task.finished():
			if err != nil {
				return endError{err}
			}
			s.due.add(func(d *due) { d.reply = s.task })
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
		s.due.add(func(d *due) { d.chunk, d.of = v.Fetch, s.task })
	case *protocol.ServerMessage_Receipt:
		s.task.acknowledge(v.Receipt)
	}
	return nil
}

// receiveAll passes the server's messages on until the stream ends.
func (s *clientStream) receiveAll() {
	for {
		m, err := s.stream.Receive()
		if err == nil {
			select {
			case s.in <- m:
				continue
			case <-s.ctx.Done():
				err = s.ctx.Err()
			}
		}
		s.why = err
		close(s.failed)
		return
	}
}

// receive returns the next message.
func (s *clientStream) receive(ctx context.Context) (*protocol.ServerMessage, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.failed:
		return nil, s.why
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send sends one message.
func (s *clientStream) send(m *protocol.ClientMessage) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	err := s.stream.Send(m)
	if errors.Is(err, io.EOF) { // the error of the stream is that of receiving
		<-s.failed
		return s.why
	}
	return err
}

// due holds the messages that a stream must send: few, whatever the server asks for.
type due struct {
	wake chan struct{}

	mu    sync.Mutex
	fetch *protocol.Fetch // a request for chunks of the instruction
	reply *task           // whose reply is sent
	chunk *protocol.Fetch // the next chunk of a reply
	of    *task           // its task
}

// add adds a message.
func (d *due) add(change func(*due)) {
	d.mu.Lock()
	change(d)
	d.mu.Unlock()
	notify(d.wake)
}

// next returns the next message and removes it, or nil.
func (s *clientStream) next() *protocol.ClientMessage {
	d := &s.due
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.fetch != nil:
		m := &protocol.ClientMessage{Kind: &protocol.ClientMessage_Fetch{Fetch: d.fetch}}
		d.fetch = nil
		return m
	case d.reply != nil:
		r := d.reply.message(s.limit)
		d.reply = nil
		return &protocol.ClientMessage{Kind: &protocol.ClientMessage_Reply{Reply: r}}
	case d.chunk != nil:
		c := d.of.chunk(d.chunk)
		if d.chunk = nil; c == nil {
			return nil
		}
		d.chunk = after(c)
		return &protocol.ClientMessage{Kind: &protocol.ClientMessage_Chunk{Chunk: c}}
	}
	return nil
}

// sendAll sends what is due until the stream ends.
func (s *clientStream) sendAll() {
	for {
		select {
		case <-s.due.wake:
		case <-s.ctx.Done():
			return
		}
		for m := s.next(); m != nil; m = s.next() {
			if s.send(m) != nil { // receiveAll reports why
				return
			}
		}
	}
}

// close sends a last message, if any, and waits for a moment until the server has read it.
func (s *clientStream) close(last *protocol.ClientMessage) {
	go func() {
		if last == nil || s.send(last) == nil {
			s.sending.Lock()
			defer s.sending.Unlock()
			s.stream.CloseRequest()
		}
	}()
	over := time.After(time.Second)
	for {
		select {
		case <-s.in:
		case <-s.failed: // the server ended the stream, too
			return
		case <-over:
			return
		}
	}
}
