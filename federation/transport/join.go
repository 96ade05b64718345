package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/spec"
)

// join lets a client take part, or says why not.
func (h *Hub) join(d *desk, m *nats.Msg) {
	var c Card
	key, err := d.introduced(m.Data, &c, h.known[d.number].Proof.Key)
	if err == nil {
		err = h.admit(d.number, c, key)
	}
	v := verdict{Nonce: c.Nonce}
	h.mu.Lock()
	if err != nil {
		v.Reason, v.Later = plain(err.Error()), errors.Is(err, errLater)
		d.refused++
	} else {
		v.OK, v.Accepted, v.Safe, v.Seq = true, h.accepted[d.number], h.safe[d.number], h.seq
		if d.peer.seq > 0 {
			v.Seq = d.peer.seq - 1
		}
	}
	h.mu.Unlock()
	if err != nil {
		h.count.refusedJoins.Add(1)
		d.log.Warn("refused to join", "reason", v.Reason)
	} else {
		d.log.Info("joined", "backbone", plain(c.Member.Task.Backbone), "domain", plain(c.Member.Domain))
	}
	d.say(m, d.inbox, verdictMessage, v)
	if err == nil {
		h.wake(d.number, true)
	}
}

// introduced reads what a member says of itself, and the key that it is signed with; before is the one that it had
// before.
func (d *desk) introduced(b []byte, card interface{ self() *introduction }, before []byte) (verifier, error) {
	f, err := split(joinMessage, b)
	if err == nil {
		err = strict(f.header, card)
	}
	i := card.self()
	if err == nil && (i.Client != d.number || !hash.MatchString(i.Nonce)) {
		err = fmt.Errorf("the card is of client %d", i.Client)
	}
	if err == nil && i.Run != d.id {
		err = errors.New("the server began another run; start the client again")
	}
	if err != nil {
		return verifier{}, err
	}
	key, err := d.who.known(i.Proof, d.user, before)
	if err == nil && !key.verify(digest(joinMessage, f.header), f.signature) {
		err = errForged
	}
	return key, err
}

// errLater marks a refusal that may pass.
var errLater = errors.New("another process is this client")

// admit checks a card and keeps it.
func (h *Hub) admit(client int, c Card, key verifier) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &c.Member.Task
	if !word.MatchString(t.Backbone) || !word.MatchString(c.Member.Domain) || len(c.Instance) > 64 {
		return fmt.Errorf("the backbone's name %.100q, the domain %.100q or the instance is none", t.Backbone,
			c.Member.Domain)
	}
	if c.Examples < 1 || c.Examples > maxExamples {
		return fmt.Errorf("%d examples to train on; it must be 1 or more, and at most %d", c.Examples, maxExamples)
	}
	if t.Width < 1 || t.Width > 1<<16 || t.Dim < 1 || t.Dim > 1<<16 || t.Patches < 0 || t.Patches > 1<<16 ||
		t.ImageSize < 0 || t.ImageSize > 1<<14 ||
		t.VisionWidth < 0 || t.VisionWidth > 1<<16 || t.VisionLayers < 0 || t.VisionLayers > 1<<10 {
		return fmt.Errorf("the backbone's sizes are no backbone's: %+v", *t)
	}
	k := &h.known[client]
	if k.there(c.Instance) {
		return fmt.Errorf("%w: client %d was there %v ago; stop it, or wait a moment", errLater, client,
			time.Since(k.seen).Round(time.Second))
	}
	terms := h.terms
	if len(terms.Classes) == 0 {
		terms.Classes = c.Terms.Classes
	}
	if terms.Template == "" {
		terms.Template = c.Terms.Template
	}
	if !slices.ContainsFunc(h.known, func(k member) bool { return k.Member.Joined }) {
		terms.EvaluationSets = c.Terms.EvaluationSets
	}
	if len(terms.Classes) == 0 || len(terms.Classes) > 1<<20 {
		return fmt.Errorf("%d classes", len(terms.Classes))
	}
	if err := terms.Mismatch(c.Terms); err != nil {
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
			return fmt.Errorf("backbone %s has other weights or another vocabulary (%.12s, %.12s) than client %d's "+
				"(%.12s, %.12s); take the same files, or give the bundle another name",
				t.Backbone, plain(c.Backbone), plain(c.Tokens), k, other.Backbone, other.Tokens)
		}
	}
	if err := h.writeMember(UserOf(client), c); err != nil {
		return err
	}
	if !slices.ContainsFunc(h.known, func(k member) bool { return k.Member.Joined }) {
		if err := h.writeMember(termsFile, terms); err != nil {
			return err
		}
	}
	h.terms = terms
	k.Card = c
	k.joins(c.Instance, key)
	return nil
}

// Wait waits until so many clients have joined, and gives what all agreed to.
func (h *Hub) Wait(ctx context.Context, clients int) (spec.RunSpec, error) {
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
