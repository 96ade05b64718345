package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/listen"
	"promptfed/federation/net/protocol"
)

// session is the stream of one client.
type session struct {
	*Server
	client   int
	conn     *listen.Conn
	peer     certs.Peer
	instance string // identity of the client's process
	texts    int    // bytes of the texts of its last request to join
	stream   *connect.BidiStream[protocol.ClientMessage, protocol.ServerMessage]
	wake     chan struct{} // there is something to send
	ended    chan error    // the server ends the stream
	log      *slog.Logger

	// guarded by Server.mu
	control []*protocol.ServerMessage // receipts and requests for chunks that are not sent yet
	sent    string                    // attempt that was sent last
	send    *protocol.Fetch           // the next chunk to send; nil for none
}

// maxControl is how many receipts and requests for chunks a client leaves unread before its connection ends.
const maxControl = 64

// Participate is the stream of one client. Its goroutine sends; another one receives.
func (h service) Participate(ctx context.Context,
	stream *connect.BidiStream[protocol.ClientMessage, protocol.ServerMessage]) error {
	peer, client, err := h.caller(ctx)
	if err != nil {
		return err
	}
	s := &session{Server: h.Server, client: client, conn: connectionOf(ctx), peer: peer, stream: stream,
		wake: make(chan struct{}, 1), ended: make(chan error, 1), log: h.set.Log.With("client", client)}
	defer s.disconnected() // also if the connection ends between its admission and the answer
	if err := s.receiveJoin(ctx); err != nil {
		return err
	}
	h.changed()
	received := make(chan error, 1)
	go func() { received <- s.receiveAll(ctx) }()
	for {
		for m := s.next(); m != nil; m = s.next() {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-s.wake:
			continue
		case err = <-received:
		case err = <-s.ended:
		case <-h.over.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
		for m := s.nextControl(); m != nil; m = s.nextControl() { // the last receipts
			if stream.Send(m) != nil {
				break
			}
		}
		return err
	}
}

// receiveJoin answers requests to join until the client is admitted. Few streams of a client may do so at a time, as
// such a request is large.
func (s *session) receiveJoin(ctx context.Context) error {
	joining := s.clients[s.client].joining
	if !joining.TryAcquire(1) {
		return connect.NewError(connect.CodeUnavailable, errors.New("other streams of this client are joining"))
	}
	defer joining.Release(1)
	for {
		m, err := s.stream.Receive()
		if err != nil {
			return err
		}
		join := m.GetJoin()
		if join == nil {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("the first message must be Join"))
		}
		if err := s.allow(ctx, questionCost); err != nil {
			return err
		}
		answer := s.join(join)
		if err := s.allow(ctx, s.texts/textPerCost); err != nil {
			return err
		}
		err = s.stream.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Answer{Answer: answer}})
		if err == nil && !answer.Ok && !answer.Later {
			err = denied("%s", answer.Reason)
		}
		if err != nil || answer.Ok {
			return err
		}
	}
}

// maxJoining is how many streams of a client may be joining at a time.
const maxJoining = 2

// end ends the stream. Server.mu may be held.
func (s *session) end(why error) {
	select {
	case s.ended <- connect.NewError(connect.CodeAborted, why):
	default:
	}
}

// disconnected records that the stream has ended.
func (s *session) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := &s.clients[s.client]; k.session == s {
		k.session, k.seen = nil, time.Now()
		if k.left {
			s.log.Info("leaves")
		}
	}
}

// nextControl returns the next receipt or request for chunks to send, or nil.
func (s *session) nextControl() *protocol.ServerMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.control) == 0 {
		return nil
	}
	m := s.control[0]
	s.control = s.control[1:]
	return m
}

// next returns the next message to send, or nil.
func (s *session) next() *protocol.ServerMessage {
	if m := s.nextControl(); m != nil {
		return m
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.clients[s.client]
	x, m := k.pending, &protocol.ServerMessage{}
	switch {
	case x == nil:
		return nil
	case x.Attempt != s.sent:
		s.sent = x.Attempt
		o := protobuf.CloneOf(x.Instruction)
		if len(x.body) <= s.set.Limit {
			o.Content.Body = x.body
		}
		m.Kind = &protocol.ServerMessage_Instruction{Instruction: o}
	case s.send != nil && s.send.Sum == x.Content.Sum:
		c := chunkOf(x.body, s.send)
		if s.send = nil; c == nil {
			return nil
		}
		s.send = after(c)
		m.Kind = &protocol.ServerMessage_Chunk{Chunk: c}
	default:
		return nil
	}
	n := int64(protobuf.Size(m))
	s.totals.BytesDown += n
	k.down += n
	return m
}

// answer queues a receipt or a request for chunks.
func (s *session) answer(m *protocol.ServerMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.control) == maxControl { // the stream itself may be blocked
		err := errors.New("the client does not read its receipts")
		s.conn.Refuse(err)
		s.conn.Close()
		return err
	}
	s.control = append(s.control, m)
	notify(s.wake)
	return nil
}

// receiveAll handles the messages of the client in order. A client beyond its budget is read more slowly.
func (s *session) receiveAll(ctx context.Context) error {
	for {
		m, err := s.stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.allow(ctx, s.costOf(m))
		}
		if err == nil {
			err = s.handle(ctx, m)
		}
		if err != nil {
			return err
		}
	}
}

// handle handles one message of a client that has joined.
func (s *session) handle(ctx context.Context, m *protocol.ClientMessage) error {
	switch v := m.Kind.(type) {
	case *protocol.ClientMessage_Reply:
		return s.receiveReply(ctx, v.Reply)
	case *protocol.ClientMessage_Chunk:
		return s.receiveChunk(v.Chunk)
	case *protocol.ClientMessage_Fetch:
		s.mu.Lock()
		s.send = v.Fetch
		s.mu.Unlock()
		notify(s.wake)
		return nil
	case *protocol.ClientMessage_Leave:
		s.leave()
		return nil
	}
	return s.drop(fmt.Errorf("a message of kind %T at this place", m.Kind))
}

// leave records that the client's user stopped it.
func (s *session) leave() {
	s.mu.Lock()
	k := &s.clients[s.client]
	if k.session == s {
		k.left = true
	}
	s.mu.Unlock()
	s.changed()
}

// drop counts an invalid message.
func (s *session) drop(err error) error {
	s.mu.Lock()
	s.totals.Dropped++
	s.clients[s.client].refused++
	n := s.clients[s.client].refused
	s.mu.Unlock()
	log := s.log.Debug
	if n <= 10 || n%1000 == 0 { // invalid messages must not fill the log
		log = s.log.Warn
	}
	log("a message is dropped", "reason", protocol.Printable(err.Error()))
	return nil
}

// Costs of a client's messages; each 64 KiB cost 1 (see countedBody). An honest client needs a few hundred a second.
const (
	budgetRate   = 4000 // a second
	budgetBurst  = 10 * budgetRate
	messageCost  = 1
	textPerCost  = 128             // bytes of text of a request to join that cost 1: the server divides it into tokens
	questionCost = budgetRate / 2  // invitation, join, leaving: the server logs and sends instructions
	statusCost   = budgetRate / 20 // the answer is encoded ten times a second at most
	fetchCost    = budgetRate / 20 // the server sends the tensors of an instruction again
)

// costOf returns the cost of a message. A message that is larger than any that an honest client sends after its request
// to join costs as much as that: the server has it in memory as a whole.
func (s *session) costOf(m *protocol.ClientMessage) int {
	cost := messageCost
	if protobuf.Size(m) > s.set.Limit+chunkSize+2*protocol.MaxScores+protocol.MaxTerms {
		cost = questionCost
	}
	switch m.Kind.(type) {
	case *protocol.ClientMessage_Fetch:
		cost += fetchCost
	case *protocol.ClientMessage_Leave:
		cost += questionCost
	}
	return cost
}

func newBudget() *rate.Limiter { return rate.NewLimiter(budgetRate, budgetBurst) }

// allow waits until the client's budget covers a message.
func (s *session) allow(ctx context.Context, cost int) error {
	return s.clients[s.client].budget.WaitN(ctx, min(cost, budgetBurst))
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
