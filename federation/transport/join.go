package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/spec"
	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
)

// Join lets a client take part, or says why not.
func (h *Server) Join(d *exchange.Session, m *nats.Msg) {
	var c protocol.JoinRequest
	key, err := d.ReadJoin(m.Data, &c, h.clients[d.Number].Proof.Key)
	if err == nil {
		err = h.admit(d.Number, c, key)
	}
	v := protocol.JoinReply{Nonce: c.Nonce}
	h.Mu.Lock()
	if err != nil {
		v.Reason, v.Later = protocol.Printable(err.Error()), errors.Is(err, errLater)
		d.Refused++
	} else {
		v.OK, v.Accepted, v.Safe, v.Seq = true, h.accepted[d.Number], h.safe[d.Number], h.Seq
		if d.MemberState.Seq > 0 {
			v.Seq = d.MemberState.Seq - 1
		}
	}
	h.Mu.Unlock()
	if err != nil {
		h.Counters.RefusedJoins.Add(1)
		d.Log.Warn("refused to join", "reason", v.Reason)
	} else {
		d.Log.Info("joined", "backbone", protocol.Printable(c.Participant.Task.Backbone), "domain",
			protocol.Printable(c.Participant.Domain))
	}
	d.RespondSigned(m, d.Inbox, protocol.JoinReplyMessage, v)
	if err == nil {
		h.wake(d.Number, true)
	}
}

// errLater marks a refusal that may pass.
var errLater = errors.New("another process runs as this client")

// admit checks a request to join and keeps it.
func (h *Server) admit(client int, c protocol.JoinRequest, key certs.Verifier) error {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	t := &c.Participant.Task
	if !protocol.Label.MatchString(t.Backbone) || !protocol.Label.MatchString(c.Participant.Domain) ||
		len(c.Instance) > 64 || len(c.Numerics) > 64 {
		return fmt.Errorf("the backbone's name %.100q, the domain %.100q or the instance is invalid", t.Backbone,
			c.Participant.Domain)
	}
	if !h.set.asksExamples() {
		c.Examples = 0
	} else if c.Examples < 1 || c.Examples > protocol.MaxExamples {
		return fmt.Errorf("%d examples to train on; the number must be 1 to %d", c.Examples, protocol.MaxExamples)
	}
	if t.Width < 1 || t.Width > 1<<16 || t.Dim < 1 || t.Dim > 1<<16 || t.Patches < 0 || t.Patches > 1<<16 ||
		t.ImageSize < 0 || t.ImageSize > 1<<14 ||
		t.Tokens < 0 || t.Tokens > 1<<16 ||
		t.VisionWidth < 0 || t.VisionWidth > 1<<16 || t.VisionLayers < 0 || t.VisionLayers > 1<<10 {
		return fmt.Errorf("the backbone's sizes are no backbone's: %+v", *t)
	}
	k := &h.clients[client]
	if k.AliveAsAnother(c.Instance) {
		return fmt.Errorf("%w: client %d was seen %v ago; stop it, or wait a moment", errLater, client,
			time.Since(k.Seen).Round(time.Second))
	}
	agreed := h.runSpec
	if len(agreed.Classes) == 0 {
		agreed.Classes = c.RunSpec.Classes
	}
	if agreed.Template == "" {
		agreed.Template = c.RunSpec.Template
	}
	if !slices.ContainsFunc(h.clients, func(k clientRecord) bool { return k.Participant.Joined }) {
		agreed.EvaluationSets = c.RunSpec.EvaluationSets
	}
	if len(agreed.Classes) == 0 || len(agreed.Classes) > 1<<20 {
		return fmt.Errorf("%d classes are too few or too many", len(agreed.Classes))
	}
	if err := agreed.Mismatch(c.RunSpec); err != nil {
		return err
	}
	c.Participant.Joined, c.Participant.Digest = true, c.Backbone
	t.Client, t.Clients, t.Classes = client, h.set.Clients, len(agreed.Classes)
	for k, other := range h.clients {
		if !other.Participant.Joined || k == client {
			continue
		}
		if err := c.Participant.Against(other.Participant, h.set.Method); err != nil {
			return err
		}
		alike := other.Participant.Task
		alike.Client = client
		if alike.Backbone == t.Backbone && (alike != *t || other.Backbone != c.Backbone || other.Tokens != c.Tokens) {
			return fmt.Errorf("backbone %s has other weights or another vocabulary (%.12s, %.12s) than client %d's "+
				"(%.12s, %.12s); use the same files, or rename the bundle", t.Backbone,
				protocol.Printable(c.Backbone), protocol.Printable(c.Tokens), k, other.Backbone, other.Tokens)
		}
	}
	if err := h.writeMember(certs.UserOf(client), c); err != nil {
		return err
	}
	if !slices.ContainsFunc(h.clients, func(k clientRecord) bool { return k.Participant.Joined }) {
		if err := h.writeMember(runSpecFile, agreed); err != nil {
			return err
		}
	}
	h.runSpec = agreed
	for other, o := range h.clients {
		if o.Participant.Joined && o.Numerics != c.Numerics && other != client {
			h.set.Log.Warn("two clients compute otherwise in the last digits (other processors, libraries or settings "+
				"of runtime), so the bytes of this run are not promised; compare promptfed doctor on both", "client",
				client, "other", other)
			break
		}
	}
	k.JoinRequest = c
	k.SetJoined(c.Instance, key)
	return nil
}

// Wait waits until so many clients have joined, and gives what all agreed to.
func (h *Server) Wait(ctx context.Context, clients int) (spec.RunSpec, error) {
	for {
		h.Mu.Lock()
		n := 0
		for _, k := range h.clients {
			if k.Participant.Joined {
				n++
			}
		}
		agreed := h.runSpec
		h.Mu.Unlock()
		if n >= clients {
			return agreed, nil
		}
		select {
		case <-h.joined:
		case <-ctx.Done():
			return agreed, ctx.Err()
		}
	}
}

// clientRecord is a client as the server knows it.
type clientRecord struct {
	protocol.JoinRequest
	exchange.MemberState
	reason  string // why a reply was refused last
	counted int    // examples that its last upload was averaged with, where it said more; 0 otherwise
}
