package remote

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/listen"
	"promptfed/federation/net/protocol"
	"promptfed/federation/net/wait"
)

// listen opens the server's port and serves its clients.
func (h *Server) listen() error {
	var err error
	h.listener, err = listen.Open(listen.Options{Address: h.set.Listen, Identity: h.identity, Clients: h.set.Clients,
		Deferred: h.set.Token != "", Log: h.set.Log})
	if err != nil {
		return err
	}
	path, handler := protocol.NewFederationHandler(service{h},
		connect.WithReadMaxBytes(h.set.Limit+protocol.MaxControl), connect.WithCompression("gzip", nil, nil))
	mux := http.NewServeMux()
	mux.Handle(path, h.authenticated(handler))
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	h.http = &http.Server{Handler: mux, Protocols: &protocols, TLSConfig: &tls.Config{NextProtos: []string{"h2"}},
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		// The windows are small: a slow link carries them within the time of a ping.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 4, MaxReceiveBufferPerConnection: 1 << 20,
			MaxReceiveBufferPerStream: window, SendPingTimeout: pingPause, PingTimeout: pingTime},
		ErrorLog: log.New(io.Discard, "", 0), // the listener logs what it refuses
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, c.(*tls.Conn).NetConn())
		}}
	h.stops = append(h.stops, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		h.http.Shutdown(ctx) // streams send their last receipts
		h.http.Close()
		h.listener.Close()
	})
	go h.http.Serve(h.listener)
	go h.watch()
	return nil
}

// Parameters of a connection, on both sides. A side that hears nothing sends a ping after pingPause, and closes the
// connection if there is no answer within pingTime. As many bytes as window may be on the way before the answer.
const (
	window    = 256 << 10
	pingPause = 15 * time.Second
	pingTime  = 30 * time.Second
)

// URL returns the address for clients.
func (h *Server) URL() string { return h.listener.URL() }

// Renew makes the server use the certificate of another identity for new connections.
func (h *Server) Renew(who certs.Identity) error { return h.listener.Renew(who) }

type connectionKey struct{}

// service answers the calls of clients.
type service struct{ *Server }

// authenticated checks the token of a request before its handler.
func (h *Server) authenticated(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connectionOf(r.Context())
		// no other form of messages: not JSON, and none that is compressed
		if kind := r.Header.Get("Content-Type"); kind != "application/grpc" && kind != "application/grpc+proto" {
			http.Error(w, "promptfed speaks gRPC", http.StatusUnsupportedMediaType)
			return
		}
		var err error
		if token := h.set.Token; token != "" {
			given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
				time.Sleep(guessPause)
				c.Refuse(errors.New("the token is wrong"))
				err = connect.NewError(connect.CodeUnauthenticated, errors.New("the token is wrong"))
			} else if e := c.Admit(); e != nil {
				err = connect.NewError(connect.CodeUnavailable, e)
			}
		}
		if err != nil {
			refuse.Write(w, r, err)
			return
		}
		if r.URL.Path != protocol.FederationParticipateProcedure {
			r.Body = http.MaxBytesReader(w, r.Body, maxQuestion)
		}
		r.Body = &countedBody{r.Body, r.Context(), c, h.budgetOf(c.Peer()), 0}
		next.ServeHTTP(w, r)
	})
}

// maxQuestion is the largest size of a request for the invitation or the status, in bytes.
const maxQuestion = 1 << 10

// countedBody charges the caller's budget for each 64 KiB that it sends, also if they belong to a message that is too
// large and is not kept.
type countedBody struct {
	io.ReadCloser
	ctx    context.Context
	conn   *listen.Conn
	budget *rate.Limiter
	bytes  int
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.conn.Received(n)
	if b.bytes += n; b.bytes >= chunkSize {
		if e := b.budget.WaitN(b.ctx, min(b.bytes/chunkSize, budgetBurst)); e != nil {
			return n, e
		}
		b.bytes %= chunkSize
	}
	return n, err
}

// budgetOf returns the budget of a caller.
func (h *Server) budgetOf(p certs.Peer) *rate.Limiter {
	k, ok := certs.ClientOf(p.Name)
	switch {
	case !ok:
		return h.watchers
	case k >= h.set.Clients:
		return h.unknown
	}
	return h.clients[k].budget
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

// caller returns the client that calls. A client without a certificate must have the key that it joined with.
func (h *Server) caller(ctx context.Context) (certs.Peer, int, error) {
	p := connectionOf(ctx).Peer()
	k, ok := certs.ClientOf(p.Name)
	if !ok {
		return p, 0, denied("%.60q is not a client", p.Name)
	}
	if k >= h.set.Clients {
		if err := h.budgetOf(p).WaitN(ctx, questionCost); err != nil {
			return p, 0, err
		}
		return p, 0, denied("the client's number is invalid: the run has clients 0 to %d", h.set.Clients-1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.checkKey(k, p); err != nil {
		return p, 0, denied("%w", err)
	}
	return p, k, nil
}

// checkKey reports a client without a certificate that has another key than the one that it joined with. Server.mu must
// be held.
func (h *Server) checkKey(client int, p certs.Peer) error {
	before := h.clients[client].Proof.Key
	if h.identity.Certified() || before == nil || bytes.Equal(before, p.Proof.Key) {
		return nil
	}
	return fmt.Errorf("%s has another key than before", p.Name)
}

// Invite returns the invitation of a client.
func (h service) Invite(ctx context.Context, r *protocol.InvitationRequest) (*protocol.Invitation, error) {
	_, k, err := h.caller(ctx)
	if err == nil {
		err = h.clients[k].budget.WaitN(ctx, questionCost)
	}
	if err != nil {
		return nil, err
	}
	out := &protocol.Invitation{Version: protocol.Version, Run: h.set.ID}
	if r.Version != protocol.Version { // the client reports it
		return out, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out.Clients, out.Config, out.Classes = uint32(h.set.Clients), h.set.Config, h.runSpec.Classes
	out.InsecureDp, out.InlineLimit = h.set.InsecureDP, uint32(h.set.Limit)
	return out, nil
}

// Status returns the status for the status user. It is encoded at most once every statusAge.
func (h service) Status(ctx context.Context, _ *protocol.StatusRequest) (*protocol.StatusReply, error) {
	if p := connectionOf(ctx).Peer(); p.Name != certs.StatusUser {
		return nil, denied("%.60q may not ask for the status", p.Name)
	}
	if err := h.watchers.WaitN(ctx, statusCost); err != nil {
		return nil, err
	}
	h.statusMu.Lock()
	defer h.statusMu.Unlock()
	if time.Since(h.statusAt) > statusAge {
		b, err := json.Marshal(h.Server.Status())
		if err != nil {
			return nil, err
		}
		h.statusText, h.statusAt = b, time.Now()
	}
	return &protocol.StatusReply{Status: h.statusText}, nil
}

// statusAge is how long an encoded status is reused.
const statusAge = 100 * time.Millisecond

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
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.clients {
		m := &h.clients[k]
		err := m.key.Valid()
		if err == nil || m.lapsed != "" {
			continue
		}
		m.lapsed, m.left = err.Error(), true
		h.set.Log.Warn("a client is excluded", "client", k, "reason", m.lapsed)
		if m.session != nil {
			m.session.end(err)
		}
		if !h.began {
			if err := h.leaveOut(k); err != nil {
				h.set.Log.Error("cannot remove the request of a client to join", "client", k, "error", err)
			}
			notify(h.joined)
		}
		c := h.current
		if c == nil || !slices.Contains(c.instruction.Clients, k) {
			continue
		}
		if _, answered := c.got[k]; !answered {
			c.failed[k] = m.lapsed
			m.finish()
			h.totals.Refused++
			notify(c.wake)
		}
	}
}
