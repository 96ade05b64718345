package chaos

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
)

// relay is between clients and the server and has the certificates of both. It passes their messages on, one at a time
// for each client.
type relay struct {
	wire.FederationHandler
	listener net.Listener
	clients  []relayed
	hook     func(client int, what event) (drop bool)
	repeat   func() bool // whether the next message is sent twice, or once more before a later one
}

// event is a message just before the relay passes it on, or just after.
type event struct {
	message string
	after   bool
}

// relayed is a client of a relay.
type relayed struct {
	server wire.FederationClient
	mu     sync.Mutex   // of passing a message on, and of last
	last   []*wire.Part // of the last reply
	does   atomic.Value // kind of the client's instruction
}

// newRelay returns a relay to the server at an address, with the certificates of a folder. hook is called before and
// after each message; it may drop a message before.
func newRelay(t testing.TB, dir, server string, clients int, hook func(client int, what event) (drop bool)) *relay {
	t.Helper()
	r := &relay{clients: make([]relayed, clients), hook: hook, repeat: func() bool { return false }}
	for k := range r.clients {
		who, err := authority.Identity(dir, certs.UserOf(k))
		goldentest.NoError(t, err)
		r.clients[k].server = caller(t, who, certs.UserOf(k), server)
	}
	who, err := authority.Identity(dir, certs.ServerName)
	goldentest.NoError(t, err)
	conf, err := who.ServerTLS()
	goldentest.NoError(t, err)
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	_, handler := wire.NewFederationHandler(r)
	var http2 http.Protocols
	http2.SetHTTP2(true)
	h := &http.Server{TLSConfig: conf, Protocols: &http2, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			k, _ := certs.ClientOf(q.TLS.PeerCertificates[0].Subject.CommonName)
			handler.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), clientKey{}, k)))
		})}
	go h.ServeTLS(r.listener, "", "")
	t.Cleanup(func() { h.Close() })
	return r
}

type clientKey struct{}

var errDropped = errors.New("the message is dropped")

// pass passes one message on.
func (r *relay) pass(client int, message string, send func() error) error {
	r.clients[client].mu.Lock()
	defer r.clients[client].mu.Unlock()
	if r.hook(client, event{message, false}) {
		return errDropped
	}
	err := send()
	if err == nil {
		r.hook(client, event{message, true})
	}
	return err
}

// lost returns an error as the client must see it: a refusal of the server, or a lost connection.
func lost(err error) error {
	if err == nil || connect.IsWireError(err) {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

// answer passes a call with one answer on.
func answer[Q, A any](ctx context.Context, r *relay, question, answer string, q Q,
	call func(wire.FederationClient, context.Context, Q) (A, error)) (out A, err error) {
	k := ctx.Value(clientKey{}).(int)
	err = r.pass(k, question, func() (err error) {
		out, err = call(r.clients[k].server, ctx, q)
		if err == nil && r.repeat() { // the client gets the second answer
			out, err = call(r.clients[k].server, ctx, q)
		}
		return err
	})
	if err == nil && r.hook(k, event{answer, false}) {
		err = errDropped
	}
	if err == nil {
		go r.hook(k, event{answer, true}) // when the method has returned
	}
	return out, lost(err)
}

func (r *relay) Invite(ctx context.Context, q *wire.InvitationRequest) (*wire.Invitation, error) {
	return answer(ctx, r, "invitation request", "invitation", q, wire.FederationClient.Invite)
}

func (r *relay) Join(ctx context.Context, q *wire.JoinCall) (*wire.JoinAnswer, error) {
	return answer(ctx, r, "join", "answer", q, wire.FederationClient.Join)
}

func (r *relay) Leave(ctx context.Context, q *wrapperspb.StringValue) (*emptypb.Empty, error) {
	return answer(ctx, r, "leave", "left", q, wire.FederationClient.Leave)
}

func (r *relay) Next(ctx context.Context, q *wire.Ask, down *connect.ServerStream[wire.Part]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := ctx.Value(clientKey{}).(int)
	err := r.pass(k, r.kind(k, "ask"), func() error { return nil })
	if err != nil {
		return lost(err)
	}
	up, err := r.clients[k].server.Next(ctx, q) // returns with the instruction
	if err == nil && r.repeat() {
		up, err = r.clients[k].server.Next(ctx, q)
	}
	for err == nil && up.Receive() {
		p, what := up.Msg(), "part"
		if p.Instruction != nil {
			r.clients[k].does.Store(p.Instruction.Kind)
			what = "instruction"
		}
		err = r.pass(k, r.kind(k, what), func() error { return down.Send(p) })
	}
	if err == nil {
		err = up.Err()
	}
	return lost(err)
}

func (r *relay) Answer(ctx context.Context, down *connect.ClientStream[wire.Part]) (*emptypb.Empty, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := ctx.Value(clientKey{}).(int)
	reply, part, receipt := r.kind(k, "reply"), r.kind(k, "reply part"), r.kind(k, "receipt")
	r.sendLast(ctx, k)
	up, err := r.clients[k].server.Answer(ctx)
	var sent []*wire.Part
	for err == nil && down.Receive() {
		p, what := down.Msg(), part
		if p.Reply != nil {
			what = reply
		}
		sent = append(sent, proto.CloneOf(p))
		err = r.pass(k, what, func() error { return up.Send(p) })
	}
	if err == nil {
		err = down.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) { // the server has answered
		return nil, lost(err)
	}
	out, err := up.CloseAndReceive()
	r.clients[k].mu.Lock()
	r.clients[k].last = sent
	r.clients[k].mu.Unlock()
	r.sendLast(ctx, k)
	if err == nil && r.hook(k, event{receipt, false}) {
		err = errDropped
	}
	if err == nil {
		go r.hook(k, event{receipt, true})
	}
	return out, lost(err)
}

// sendLast sends the last reply of a client once more, if it is drawn. The client does not see what the server says.
func (r *relay) sendLast(ctx context.Context, client int) {
	c := &r.clients[client]
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == 0 || !r.repeat() {
		return
	}
	up, err := c.server.Answer(ctx)
	for _, p := range c.last {
		if err == nil {
			err = up.Send(p)
		}
	}
	if up != nil {
		up.CloseAndReceive()
	}
}

// kind returns the kind of a message, with the kind of the instruction that the client has.
func (r *relay) kind(client int, message string) string {
	does, _ := r.clients[client].does.Load().(string)
	return strings.TrimSpace(does + " " + message)
}
