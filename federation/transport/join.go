package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
)

// listen answers the requests of clients.
func (h *Hub) listen(nc *nats.Conn) error {
	on := func(subject string, do func(client int, m *nats.Msg)) error {
		s, err := nc.Subscribe(subject, func(m *nats.Msg) {
			client, err := h.last(m.Subject)
			if err != nil || client >= h.set.Clients {
				h.set.Log.Warn("no such client", "subject", m.Subject)
				h.answer(m, verdict{Reason: fmt.Sprintf("the run has clients 0 to %d", h.set.Clients-1)})
				return
			}
			do(client, m)
		})
		if err == nil {
			h.stops = append(h.stops, func() { s.Unsubscribe() })
		}
		return err
	}
	s, err := nc.Subscribe(h.status(), func(m *nats.Msg) { h.answer(m, h.Status()) })
	if err != nil {
		return err
	}
	h.stops = append(h.stops, func() { s.Unsubscribe() })
	return errors.Join(
		on(h.all(helloSubject), func(_ int, m *nats.Msg) {
			h.mu.Lock()
			classes := h.terms.Classes
			h.mu.Unlock()
			h.answer(m, hello{Version, h.set.ID, h.set.Clients, h.set.Limit, h.set.Config, classes})
		}),
		on(h.all(joinSubject), h.join),
		on(h.all(beatSubject), h.beat), nc.Flush())
}

func (h *Hub) answer(m *nats.Msg, v any) {
	b, err := json.Marshal(v)
	if err == nil && m.Reply != "" {
		err = m.Respond(b)
	}
	if err != nil {
		h.set.Log.Error("cannot answer", "subject", m.Subject, "error", err)
	}
}

// join lets a client take part, or says why not.
func (h *Hub) join(client int, m *nats.Msg) {
	v := verdict{}
	var c Card
	err := strict(m.Data, &c)
	if err == nil {
		err = h.admit(client, c)
	}
	h.mu.Lock()
	if err != nil {
		v.Reason, v.Later = plain(err.Error()), errors.Is(err, errLater) || errors.Is(err, errUnready)
		h.known[client].refused++
	} else {
		v.OK, v.Accepted, v.Safe = true, h.accepted[client], h.safe[client]
	}
	h.mu.Unlock()
	if err != nil {
		h.count.refusedJoins.Add(1)
		h.set.Log.Warn("refused to join", "client", client, "reason", v.Reason)
	} else {
		h.set.Log.Info("joined", "client", client, "backbone", plain(c.Member.Task.Backbone), "domain", plain(c.Member.Domain))
	}
	h.answer(m, v)
	if err == nil {
		h.wake(client)
	}
}

// errLater marks a refusal that may pass.
var errLater = errors.New("another process is this client")

// errUnready marks what the NATS server could not do; it may be about to start, or get more room.
var errUnready = errors.New("NATS JetStream")

// noRoom is JetStream's code for a bucket that does not fit beside what is promised to others.
const noRoom = 10047

// admit checks a card and keeps it.
func (h *Hub) admit(client int, c Card) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Run != h.set.ID {
		return errors.New("the server began another run; start the client again")
	}
	t := &c.Member.Task
	if !word.MatchString(t.Backbone) || !word.MatchString(c.Member.Domain) || len(c.Instance) > 64 {
		return fmt.Errorf("the backbone's name %.100q, the domain %.100q or the instance is none", t.Backbone, c.Member.Domain)
	}
	if c.Examples < 1 {
		return fmt.Errorf("%d examples to train on", c.Examples)
	}
	if t.Width < 1 || t.Width > 1<<16 || t.Dim < 1 || t.Dim > 1<<16 || t.Patches < 0 || t.Patches > 1<<16 || t.ImageSize < 0 || t.ImageSize > 1<<14 ||
		t.VisionWidth < 0 || t.VisionWidth > 1<<16 || t.VisionLayers < 0 || t.VisionLayers > 1<<10 {
		return fmt.Errorf("the backbone's sizes are no backbone's: %+v", *t)
	}
	old := h.known[client]
	if old.Instance != "" && old.Instance != c.Instance && !old.left && time.Since(old.seen) < 3*pulse {
		return fmt.Errorf("%w: client %d was there %v ago; stop it, or wait a moment", errLater, client, time.Since(old.seen).Round(time.Second))
	}
	terms := h.terms
	if len(terms.Classes) == 0 {
		terms.Classes = c.Terms.Classes
	}
	if terms.Template == "" {
		terms.Template = c.Terms.Template
	}
	if !slices.ContainsFunc(h.known, func(k member) bool { return k.Member.Joined }) {
		terms.Exams = c.Terms.Exams
	}
	if len(terms.Classes) == 0 || len(terms.Classes) > 1<<20 {
		return fmt.Errorf("%d classes", len(terms.Classes))
	}
	if err := terms.Differs(c.Terms); err != nil {
		return err
	}
	c.Member.Joined = true
	t.Client, t.Clients, t.Classes = client, h.set.Clients, len(terms.Classes)
	for k, other := range h.known {
		if !other.Member.Joined || k == client {
			continue
		}
		if err := c.Member.Against(other.Member, h.set.Method); err != nil {
			return err
		}
		alike := other.Member.Task
		alike.Client = client
		if alike.Backbone == t.Backbone && (alike != *t || other.Backbone != c.Backbone || other.Tokens != c.Tokens) {
			return fmt.Errorf("backbone %s has other weights or another vocabulary (%.12s, %.12s) than client %d's (%.12s, %.12s); take the same files, or give the bundle another name",
				t.Backbone, plain(c.Backbone), plain(c.Tokens), k, other.Backbone, other.Tokens)
		}
	}
	if err := h.enrol(client, c, terms); err != nil {
		return err
	}
	h.terms = terms
	h.known[client].Card, h.known[client].seen, h.known[client].left = c, time.Now(), false
	return nil
}

// enrol stores a member and makes what it needs.
func (h *Hub) enrol(client int, c Card, terms engine.Terms) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := h.js.CreateOrUpdateConsumer(ctx, h.orders(), jetstream.ConsumerConfig{Durable: h.consumer(client),
		FilterSubject: h.subject(orderSubject, client), AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1})
	if err == nil {
		_, err = h.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: h.bucket(client), TTL: 24 * time.Hour,
			MaxBytes: 4 * int64(h.set.Largest)})
	}
	for key, v := range map[string]any{termsKey: terms, h.consumer(client): c} {
		if err != nil {
			break
		}
		var b []byte
		if b, err = json.Marshal(v); err == nil {
			_, err = h.members.Put(ctx, key, b)
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == noRoom {
		return fmt.Errorf("%w: %w: every client may fill %d bytes; start promptfed serve with a smaller --largest, or give the NATS server more storage",
			errUnready, err, 4*h.set.Largest)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnready, err)
	}
	return nil
}

func (h *Hub) beat(client int, m *nats.Msg) {
	var b beat
	if err := strict(m.Data, &b); err != nil {
		h.set.Log.Warn("no heartbeat", "client", client, "error", plain(err.Error()))
		return
	}
	h.mu.Lock()
	k := &h.known[client]
	mine := k.Instance == b.Instance
	back := mine && k.left && !b.Leaves
	if mine {
		k.seen, k.doing, k.left = time.Now(), plain(b.Doing), b.Leaves
	}
	h.mu.Unlock()
	if mine && b.Leaves {
		h.set.Log.Info("leaves", "client", client)
	}
	if b.Leaves || back {
		h.wake(client)
	}
}

// Wait waits until so many clients have joined, and gives what all agreed to.
func (h *Hub) Wait(ctx context.Context, clients int) (engine.Terms, error) {
	for {
		h.mu.Lock()
		n := 0
		for _, k := range h.known {
			if k.Member.Joined {
				n++
			}
		}
		terms := h.terms
		h.mu.Unlock()
		if n >= clients {
			return terms, nil
		}
		select {
		case <-h.joined:
		case <-ctx.Done():
			return terms, ctx.Err()
		}
	}
}
