package transport

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// listen answers clients.
func (h *Hub) listen() error {
	for k := range h.set.Clients {
		d := h.desk(h.client(k), &h.known[k].peer, k, UserOf(k), h, h.set.Log.With("client", k))
		h.desks = append(h.desks, &d)
	}
	for _, d := range h.desks {
		if err := d.subscribe(); err != nil {
			return err
		}
	}
	_, err := h.on(h.status(), func(m *nats.Msg) {
		if b, err := json.Marshal(h.Status()); err == nil {
			h.answer(m, h.toStatus(), b)
		}
	})
	if err != nil {
		return err
	}
	// Clients of another release, and such that are none, are told so; both have one subject for it.
	if _, err := h.on(h.oldHello("*"), func(m *nats.Msg) {
		if b, err := json.Marshal(hello{Version: Version}); err == nil {
			h.answer(m, oldInbox+m.Subject[len(h.oldHello("")):], b)
		}
	}); err != nil {
		return err
	}
	if _, err := h.on("pf."+h.set.Name+".from.*."+helloVerb, func(m *nats.Msg) {
		if k, ok := clientOf(m.Subject); ok && k >= h.set.Clients {
			q, _ := asked(m)
			h.say(m, h.client(k).inbox, helloMessage, hello{Version: Version, Nonce: q.Nonce,
				Proof:   h.voice.Load().proof,
				Refused: fmt.Sprintf("the run has clients 0 to %d", h.set.Clients-1)})
		}
	}); err != nil {
		return err
	}
	stop := make(chan struct{})
	h.stops = append(h.stops, func() { close(stop) })
	go h.watch(stop)
	return h.nc.Flush()
}

// watch tells of clients that send more than they may, and cuts them off.
func (h *Hub) watch(stop <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if _, err := h.who.revoked.Refresh(); err != nil {
			h.log.Error("cannot read", "error", err)
		}
		h.lapse()
		for _, d := range h.desks {
			if all, err := d.sub.Dropped(); err == nil {
				d.flooded.Add(int64(all - d.dropped))
				d.dropped = all
			}
			if d.floods() && h.set.Ban != nil {
				h.set.Ban(d.number)
			}
		}
	}
}

// lapse leaves out the clients whose certificates were revoked or expired: what they signed counts no longer, and
// nobody waits for them until they join with others.
func (h *Hub) lapse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.known {
		m := &h.known[k]
		err := m.key.current()
		if err == nil || m.lapsed != "" {
			continue
		}
		m.lapsed, m.left = err.Error(), true
		h.log.Warn("a client is left out", "client", k, "reason", m.lapsed)
		c := h.now
		if c == nil || !slices.Contains(c.order.Clients, k) {
			continue
		}
		if _, answered := c.got[k]; !answered {
			c.failed[k] = m.lapsed
			h.desks[k].end(m.now)
			h.count.refused.Add(1)
			poke(c.wake)
		}
	}
}

// greet tells a client about the run.
func (h *Hub) greet(*desk, question) hello {
	h.mu.Lock()
	defer h.mu.Unlock()
	return hello{Clients: h.set.Clients, Config: h.set.Config, Classes: h.terms.Classes, InsecureDP: h.set.InsecureDP}
}
