package transport

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// listen subscribes to the clients' messages.
func (h *Server) listen() error {
	for k := range h.set.Clients {
		d := h.NewSession(h.Client(k), &h.clients[k].MemberState, k, certs.UserOf(k), h, h.set.Log.With("client", k))
		h.sessions = append(h.sessions, &d)
	}
	for _, d := range h.sessions {
		if err := d.Subscribe(); err != nil {
			return err
		}
	}
	watchers, unknownClients := h.NewBudget(), h.NewBudget()
	var text []byte
	var at time.Time
	if err := h.SubscribeUser(h.StatusRequest(), func(m *nats.Msg) {
		if !watchers.Allow(exchange.StatusCost) {
			return
		}
		if time.Since(at) > statusAge {
			b, err := json.Marshal(h.Status())
			if err != nil {
				h.Log.Error("cannot encode the status", "error", err)
				return
			}
			text, at = b, time.Now()
		}
		h.Respond(m, h.ToStatus(), text)
	}); err != nil {
		return err
	}
	if _, err := h.Subscribe(h.FromAnyClient(subjects.HelloVerb), func(m *nats.Msg) {
		k, ok := subjects.ClientOf(m.Subject)
		if ok && k >= h.set.Clients && unknownClients.Allow(exchange.QuestionCost) {
			h.RespondHello(m, h.Client(k).Inbox, protocol.HelloReply{
				Refused: fmt.Sprintf("the client's number is invalid: the run has clients 0 to %d", h.set.Clients-1)})
		}
	}); err != nil {
		return err
	}
	h.EverySecond(h.watch)
	return h.Conn.Flush()
}

// statusAge is how long an encoded status is reused.
const statusAge = 100 * time.Millisecond

// watch checks for certificates that are no longer valid.
func (h *Server) watch() {
	if _, err := h.Identity.Revoked.Refresh(); err != nil {
		h.Log.Error("cannot read", "error", err)
	}
	h.dropInvalid()
}

// dropInvalid excludes clients whose certificates were revoked or expired. Their signatures no longer count, and nobody
// waits for them until they join with other certificates.
func (h *Server) dropInvalid() {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	for k := range h.clients {
		m := &h.clients[k]
		err := m.Key.Valid()
		if err == nil || m.Lapsed != "" {
			continue
		}
		m.Lapsed, m.Left = err.Error(), true
		h.Log.Warn("a client is excluded", "client", k, "reason", m.Lapsed)
		if !h.began {
			if err := h.leaveOut(k); err != nil {
				h.Log.Error("cannot remove the request of a client to join", "client", k, "error", err)
			}
			exchange.Notify(h.joined)
		}
		c := h.current
		if c == nil || !slices.Contains(c.order.Clients, k) {
			continue
		}
		if _, answered := c.got[k]; !answered {
			c.failed[k] = m.Lapsed
			h.sessions[k].End(m.Pending)
			h.Counters.Refused.Add(1)
			exchange.Notify(c.wake)
		}
	}
}

// Hello returns the invitation of a client.
func (h *Server) Hello(*exchange.Session, protocol.HelloRequest) protocol.HelloReply {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	return protocol.HelloReply{Clients: h.set.Clients, Config: h.set.Config, Classes: h.runSpec.Classes,
		InsecureDP: h.set.InsecureDP}
}
