package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
)

// Join admits a client, or answers why not.
func (h *Server) Join(d *exchange.Session, m *nats.Msg) {
	var c protocol.JoinRequest
	key, err := d.ReadJoin(m.Data, &c, h.clients[d.Number].Proof.Key)
	if err == nil {
		err = h.admit(d.Number, c, key)
	}
	v := protocol.JoinReply{Question: protocol.Question(m.Subject, m.Data)}
	h.Mu.Lock()
	k := &h.clients[d.Number]
	said := k.reason
	if err != nil {
		v.Reason, v.Later = protocol.Printable(err.Error()), errors.As(err, new(laterError))
		k.reason = v.Reason
		d.Refused++
	} else {
		v.OK, v.Accepted, v.Safe, v.Seq = true, h.accepted[d.Number], h.safe[d.Number], h.Seq
		if d.MemberState.Seq > 0 {
			v.Seq = d.MemberState.Seq - 1
		}
		k.reason = ""
	}
	h.Mu.Unlock()
	switch {
	case err == nil:
		d.Log.Info("joined", "backbone", protocol.Printable(c.Participant.Task.Backbone), "domain",
			protocol.Printable(c.Participant.Domain))
	case v.Later && v.Reason == said: // a repeated request
	case v.Later:
		d.Log.Warn("asked to wait", "reason", v.Reason)
	default:
		d.Log.Warn("refused to join", "reason", v.Reason)
	}
	if err != nil && !v.Later {
		h.Counters.RefusedJoins.Add(1)
	}
	d.RespondSigned(m, d.Inbox, protocol.JoinReplyMessage, v)
	if err == nil {
		h.wake(d.Number, true)
	} else if v.Later { // its request counts for the majority
		exchange.Notify(h.joined)
	}
}

// laterError is a temporary refusal: the client must ask again.
type laterError string

func (e laterError) Error() string { return string(e) }

// admit checks and stores a request to join.
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
		return fmt.Errorf("the backbone has impossible sizes: %+v", *t)
	}
	k := &h.clients[client]
	if k.HasOtherInstance(c.Instance) {
		return laterError(fmt.Sprintf("another process runs as this client: client %d was seen %v ago; stop it, or "+
			"wait a moment", client, time.Since(k.Seen).Round(time.Second)))
	}
	if len(c.RunSpec.Classes) == 0 || len(c.RunSpec.Classes) > 1<<20 {
		return fmt.Errorf("%d classes are too few or too many", len(c.RunSpec.Classes))
	}
	t.Client, t.Clients, t.Classes = client, h.set.Clients, len(c.RunSpec.Classes)
	c.Participant.Digest = c.Backbone
	if err := h.checkFixed(c); err != nil {
		return err
	}
	why := h.disagrees(client, c)
	if why != nil && !errors.As(why, new(laterError)) {
		return why
	}
	c.Participant.Joined = why == nil || !h.began
	if err := h.writeMember(certs.UserOf(client), c); err != nil {
		return err
	}
	for other, o := range h.clients {
		if o.Participant.Joined && o.Numerics != c.Numerics && other != client {
			h.set.Log.Warn("two clients round differently (other processors, libraries or settings of runtime), so "+
				"the bytes of this run are not promised; compare promptfed doctor on both", "client", client,
				"other", other)
			break
		}
	}
	k.JoinRequest = c
	k.SetJoined(c.Instance, key)
	return why
}

// clientRecord is the server's state of a client.
type clientRecord struct {
	protocol.JoinRequest
	exchange.MemberState
	missed  int    // missed deadlines minus answers, from 0 to patience; at patience no round waits for it
	reason  string // why its last reply was refused
	counted int    // reduced weight of its last upload, in examples; 0 if it was not reduced
}
