package server

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/listen"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
)

// listen opens the server's port and serves its clients.
func (h *Server) listen() error {
	var err error
	h.listener, err = listen.Open(listen.Options{Address: h.set.Listen, Identity: h.identity, Clients: h.set.Clients,
		Deferred: h.set.Token != "", Log: h.set.Log})
	if err != nil {
		return err
	}

	path, handler := wire.NewFederationHandler(service{h},
		connect.WithReadMaxBytes(h.set.Limit+wire.MaxControl), connect.WithCompression("gzip", nil, nil))
	mux := http.NewServeMux()
	mux.Handle(path, h.authenticated(handler))
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	h.http = &http.Server{Handler: mux, Protocols: &protocols, TLSConfig: &tls.Config{NextProtos: []string{"h2"}},
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 4, MaxReceiveBufferPerConnection: wire.ConnectionWindow,
			MaxReceiveBufferPerStream: wire.Window, SendPingTimeout: wire.PingPause, PingTimeout: wire.PingTime},
		ErrorLog: log.New(io.Discard, "", 0), // the listener logs what it refuses
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, c.(*tls.Conn).NetConn())
		}}

	h.stops = append(h.stops, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		h.http.Shutdown(ctx) // the last receipts are sent
		h.http.Close()
		h.listener.Close()
	})

	go h.http.Serve(h.listener)
	go h.watch()
	return nil
}

// URL returns the address for clients.
func (h *Server) URL() string { return h.listener.URL() }

// Renew makes the server use the certificate of another identity for new connections.
func (h *Server) Renew(who certs.Identity) error { return h.listener.Renew(who) }

// Keys of the context of a call.
type (
	connectionKey struct{} // its connection
	responseKey   struct{} // the deadlines of its response and its request
)

// service answers the calls of clients.
type service struct{ *Server }

// authenticated checks the token of a request before its handler.
func (h *Server) authenticated(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := connectionOf(r.Context())

		// no other form of messages: not JSON, and none that is compressed
		if kind := r.Header.Get("Content-Type"); kind != "application/grpc" && kind != "application/grpc+proto" {
			http.Error(w, "promptfed speaks gRPC", http.StatusUnsupportedMediaType)
			return
		}

		caller := h.callerOf(conn.Peer())
		var err error
		if token := h.set.Token; token != "" {
			given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
				time.Sleep(guessPause)
				conn.Refuse(errors.New("the token is wrong"))
				err = connect.NewError(connect.CodeUnauthenticated, errors.New("the token is wrong"))
			} else if e := conn.Admit(); e != nil {
				err = connect.NewError(connect.CodeUnavailable, e)
			}
		}

		if r.URL.Path != wire.FederationJoinProcedure && r.URL.Path != wire.FederationAnswerProcedure {
			r.Body = http.MaxBytesReader(w, r.Body, maxQuestion)
		} else if err == nil {
			select {
			case caller.open <- struct{}{}:
				defer func() { <-caller.open }()
			default:
				err = connect.NewError(connect.CodeUnavailable, errors.New("other calls of this client are open"))
			}
		}

		if err != nil {
			refuse.Write(w, r, err)
			return
		}

		deadlines := http.NewResponseController(w)
		r.Body = &countedBody{r.Body, r.Context(), conn, caller.budget, deadlines, 0}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), responseKey{}, deadlines)))
	})
}

// maxQuestion is the largest size of a request without tensors or classes, in bytes.
const maxQuestion = 1 << 10

// countedBody charges the caller's budget for each 64 KiB that it sends, also if they belong to a message that is too
// large and is not kept.
type countedBody struct {
	io.ReadCloser
	ctx       context.Context
	conn      *listen.Conn
	budget    *rate.Limiter
	deadlines *http.ResponseController
	bytes     int
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.conn.Received(n)
	if b.bytes += n; b.bytes >= wire.PartSize {
		if e := b.budget.WaitN(b.ctx, min(b.bytes/wire.PartSize, budgetBurst)); e != nil {
			return n, e
		}
		b.bytes %= wire.PartSize
	}

	return n, err
}

// Close counts what has arrived and is not read: a reply that is late belongs to a call, too.
func (b *countedBody) Close() error {
	b.deadlines.SetReadDeadline(time.Now())
	io.CopyN(io.Discard, b, wire.Window)
	return b.ReadCloser.Close()
}

// callerOf returns what the server keeps of a caller. A client with another key than the one that joined is unknown.
func (h *Server) callerOf(p certs.Peer) *caller {
	k, ok := certs.ClientOf(p.Name)
	if !ok {
		return h.watchers
	}

	if k < h.set.Clients {
		if one := h.members.client(k); h.checkKey(&one, p) == nil {
			return h.callers[k]
		}
	}

	return h.unknown
}

// guessPause is the delay of the answer to a wrong token.
const guessPause = 500 * time.Millisecond

// connectionOf returns the connection of a call.
func connectionOf(ctx context.Context) *listen.Conn {
	return ctx.Value(connectionKey{}).(*listen.Conn)
}

// denied returns the error of a call that its caller may not make.
func denied(format string, a ...any) error {
	return connect.NewError(connect.CodePermissionDenied, fmt.Errorf(format, a...))
}

// caller returns the client that calls, after its budget covers a cost. A client without a certificate must have
// the key that it joined with.
func (h *Server) caller(ctx context.Context, cost int) (certs.Peer, int, error) {
	peer := connectionOf(ctx).Peer()
	client, ok := certs.ClientOf(peer.Name)
	if !ok {
		return peer, 0, denied("%.60q is not a client", peer.Name)
	}

	if client >= h.set.Clients {
		if err := h.unknown.budget.WaitN(ctx, questionCost); err != nil {
			return peer, 0, err
		}
		return peer, 0, denied("the client's number is invalid: the run has clients 0 to %d", h.set.Clients-1)
	}

	one := h.members.client(client)
	if err := h.checkKey(&one, peer); err != nil {
		return peer, 0, denied("%w", err)
	}

	return peer, client, h.charge(ctx, client, cost)
}

// checkKey reports a client without a certificate that has another key than the one that it joined with.
func (h *Server) checkKey(one *member, p certs.Peer) error {
	before := one.Proof.Key
	if h.identity.Certified() || before == nil || bytes.Equal(before, p.Proof.Key) {
		return nil
	}
	return fmt.Errorf("%s has another key than before", p.Name)
}

// watch excludes clients whose certificates are no longer valid. The listener reads the list of revoked ones.
func (h *Server) watch() {
	for wait.For(h.over, watchTime) == nil {
		h.dropInvalid()
	}
}

const watchTime = 250 * time.Millisecond

// dropInvalid excludes clients whose certificates were revoked or expired. Nobody waits for them until they join with
// other certificates.
func (h *Server) dropInvalid() {
	roster := h.members.roster()
	for k, snapshot := range roster.clients {
		err := snapshot.key.Valid()
		if err == nil || snapshot.lapsed != "" {
			continue
		}

		h.members.change(k, func(one *member) {
			if one.card == snapshot.card { // it did not join again with another certificate
				snapshot.lapsed, one.lapsed, one.left = err.Error(), err.Error(), true
				one.session.end(err)
			}
		})

		if snapshot.lapsed == "" {
			continue
		}

		h.set.Log.Warn("a client is excluded", "client", k, "reason", err)
		if !roster.began {
			h.members.change(k, (*member).forget)
			if err := h.save(k); err != nil {
				h.set.Log.Error("cannot remove the request of a client to join", "client", k, "error", err)
			}
		}

		if c := h.current.Load(); c != nil {
			h.fail(k, c, "", err.Error(), 0, nil)
		}

		h.changed()
	}
}

// caller is what the server keeps of a client whether it has joined or not.
type caller struct {
	budget *rate.Limiter
	open   chan struct{} // has an element for each call that may hold a large message
	file   sync.Mutex    // of writing its file
}

// maxOpen is how many calls to join and for a reply a caller may have at a time, on all its connections: an honest one
// has one, and for a moment those of connections that it lost.
const maxOpen = 4

// Costs of a client's calls; each 64 KiB cost 1 (see countedBody). An honest client makes two for each instruction.
const (
	budgetRate   = 4000 // a second
	budgetBurst  = 10 * budgetRate
	partCost     = 1
	callCost     = 8
	textPerCost  = 128             // bytes of text of a request to join that cost 1: the server divides it into tokens
	questionCost = budgetRate / 2  // invitation, join, leaving: the server logs and sends instructions
	statusCost   = budgetRate / 20 // the answer is encoded ten times a second at most
)

// costOf returns the cost of a part of a reply. A part that is larger than any that an honest client sends costs as
// much as a request to join: the server has it in memory as a whole.
func (h *Server) costOf(p *wire.Part) int {
	if protobuf.Size(p) > h.set.Limit+wire.PartSize+2*wire.MaxScores+wire.MaxTerms {
		return questionCost
	}
	return partCost
}

func newCaller() *caller {
	return &caller{budget: rate.NewLimiter(budgetRate, budgetBurst), open: make(chan struct{}, maxOpen)}
}

// charge waits until the client's budget covers a cost.
func (h *Server) charge(ctx context.Context, client, cost int) error {
	return h.callers[client].budget.WaitN(ctx, min(cost, budgetBurst))
}
