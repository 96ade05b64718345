package chaos

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/protocol"
)

// relay is between clients and the server and has the certificates of both. It passes their messages on, one at a time
// for each client.
type relay struct {
	protocol.UnimplementedFederationHandler
	listener net.Listener
	clients  []relayed
	hook     func(client int, what event) (drop bool)
}

// event is a message just before the relay passes it on, or just after.
type event struct {
	message string
	after   bool
}

// relayed is a client of a relay.
type relayed struct {
	server protocol.FederationClient
	mu     sync.Mutex   // of passing a message on
	does   atomic.Value // kind of the client's instruction
}

// newRelay returns a relay to the server at an address, with the certificates of a folder. hook is called before and
// after each message; it may drop a message before.
func newRelay(t testing.TB, dir, server string, clients int, hook func(client int, what event) (drop bool)) *relay {
	t.Helper()
	r := &relay{clients: make([]relayed, clients), hook: hook}
	for k := range r.clients {
		who, err := authority.Identity(dir, certs.UserOf(k))
		if err != nil {
			t.Fatal(err)
		}
		r.clients[k].server = caller(t, who, certs.UserOf(k), server)
	}
	who, err := authority.Identity(dir, certs.ServerName)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := who.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	_, handler := protocol.NewFederationHandler(r)
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

func (r *relay) Invite(ctx context.Context, q *protocol.InvitationRequest) (*protocol.Invitation, error) {
	k := ctx.Value(clientKey{}).(int)
	var out *protocol.Invitation
	err := r.pass(k, "invitation request", func() (err error) {
		out, err = r.clients[k].server.Invite(ctx, q)
		return err
	})
	if err != nil {
		return nil, lost(err)
	}
	if r.hook(k, event{"invitation", false}) {
		return nil, lost(errDropped)
	}
	go r.hook(k, event{"invitation", true}) // when this method has returned
	return out, nil
}

func (r *relay) Participate(ctx context.Context,
	down *connect.BidiStream[protocol.ClientMessage, protocol.ServerMessage]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k := ctx.Value(clientKey{}).(int)
	up, err := r.clients[k].server.Participate(ctx)
	if err != nil {
		return lost(err)
	}
	defer up.CloseRequest()
	go func() {
		for {
			m, err := down.Receive()
			if err == nil {
				err = r.pass(k, r.fromClient(k, m), func() error { return up.Send(m) })
			} else if errors.Is(err, io.EOF) {
				up.CloseRequest()
				return
			}
			if errors.Is(err, io.EOF) { // the error of a stream is that of receiving
				return
			}
			if err != nil {
				cancel()
				up.CloseRequest() // net/http sees the end of a context only after the end of the request
				return
			}
		}
	}()
	for {
		m, err := up.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = r.pass(k, r.fromServer(k, m), func() error { return down.Send(m) })
		}
		if err != nil {
			return lost(err)
		}
	}
}

// fromClient returns the kind of a message, with the kind of the instruction that the client has.
func (r *relay) fromClient(client int, m *protocol.ClientMessage) string {
	does, _ := r.clients[client].does.Load().(string)
	switch m.Kind.(type) {
	case *protocol.ClientMessage_Join:
		return "join"
	case *protocol.ClientMessage_Fetch:
		return does + " fetch"
	case *protocol.ClientMessage_Chunk:
		return does + " reply chunk"
	case *protocol.ClientMessage_Reply:
		return does + " reply"
	}
	return "leave"
}

func (r *relay) fromServer(client int, m *protocol.ServerMessage) string {
	if o := m.GetInstruction(); o != nil {
		r.clients[client].does.Store(o.Kind)
	}
	does, _ := r.clients[client].does.Load().(string)
	switch m.Kind.(type) {
	case *protocol.ServerMessage_Instruction:
		return does + " instruction"
	case *protocol.ServerMessage_Fetch:
		return does + " reply fetch"
	case *protocol.ServerMessage_Chunk:
		return does + " chunk"
	case *protocol.ServerMessage_Receipt:
		return does + " receipt"
	}
	return "answer"
}
