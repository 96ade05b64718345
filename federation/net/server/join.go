package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
)

// join admits a process of a client, or returns why not. The caller ends the session's first call.
func (h *Server) join(client int, peer certs.Peer, m *wire.JoinCall) (session *session, texts int, err error) {
	var request wire.JoinRequest
	if err = h.readJoin(m, &request); err == nil {
		request.Proof = peer.Proof
		session, err = h.admit(client, peer, m.Instance, request)
	}

	if errors.As(err, new(ownError)) {
		return session, request.RunSpec.TextSize(), err
	}

	log, said := h.set.Log.With("client", client), h.counts.tally(client).reason
	later := errors.As(err, new(laterError))
	reason := ""
	if err != nil {
		reason = wire.Printable(err.Error())
	}

	h.counts.change(func(c *counts) {
		k := &c.clients[client]
		if k.reason = reason; err != nil {
			k.refused++
		}
		if err != nil && !later {
			c.RefusedJoins++
		}
	})

	switch {
	case err == nil:
		log.Info("joined", "backbone", wire.Printable(request.Participant.Task.Backbone), "domain",
			wire.Printable(request.Participant.Domain))
	case later && reason == said: // a repeated request
	case later:
		log.Warn("asked to wait", "reason", reason)
	default:
		log.Warn("refused to join", "reason", reason)
	}

	if err == nil || later { // the request of a client that waits counts for the majority
		h.changed()
	}

	return session, request.RunSpec.TextSize(), err
}

// readJoin decodes a request to join this run.
func (h *Server) readJoin(m *wire.JoinCall, c *wire.JoinRequest) error {
	if m.Run != h.set.ID {
		return errors.New("the server started another run; restart the client")
	}
	if !wire.ID.MatchString(m.Instance) {
		return fmt.Errorf("%.50q is not an identity", m.Instance)
	}
	return wire.DecodeStrict(m.Request, c)
}

// laterError is a temporary refusal: the client must ask again.
type laterError string

func (e laterError) Error() string { return string(e) }

// maxDigest is the largest size of a digest in a request to join, in bytes.
const maxDigest = 64

// checkRequest refuses a request to join by its own sizes, before anything is computed from it.
func checkRequest(request wire.JoinRequest) error {
	client := request.Participant.Task
	if !wire.Label.MatchString(client.Backbone) || strings.ContainsAny(client.Backbone, "/:") || // files have this name
		!filepath.IsLocal(client.Backbone) || !wire.Label.MatchString(request.Participant.Domain) {
		return fmt.Errorf("the backbone's name %.100q or the domain %.100q is invalid", client.Backbone,
			request.Participant.Domain)
	}

	if max(len(request.Numerics), len(request.Backbone), len(request.Tokens)) > maxDigest {
		return fmt.Errorf("a digest has more than %d bytes", maxDigest)
	}

	if min(client.Width, client.Dim) < 1 || min(client.Patches, client.ImageSize, client.Tokens, client.VisionWidth,
		client.VisionLayers, client.VisionUnits, client.TextLayers, client.TextUnits) < 0 ||
		max(client.Width, client.Dim, client.Patches, client.Tokens, client.VisionWidth, client.VisionUnits,
			client.TextUnits) > 1<<16 || client.ImageSize > 1<<14 || max(client.VisionLayers,
		client.TextLayers) > 1<<10 {
		return fmt.Errorf("the backbone has impossible sizes: %+v", client)
	}

	return request.RunSpec.CheckSizes()
}

// examine refuses a request to join that differs from what is decided, and computes what others must share with it.
func (h *Server) examine(r roster, card *card) (err error) {
	if err := checkRequest(card.JoinRequest); err != nil {
		return err
	}

	if err := r.checkFixed(h.set, card.JoinRequest); err != nil {
		return err
	}

	if err := h.checkOwn(card.JoinRequest); err != nil {
		return err
	}

	card.files = filesOf(card.JoinRequest)
	card.experiment, err = h.experimentOf(card.JoinRequest)
	return err
}

// admit checks and stores a request to join. It judges by the roster of one moment, and judges again if the roster has
// changed in the meantime.
func (h *Server) admit(client int, peer certs.Peer, instance string, request wire.JoinRequest) (session *session,
	err error) {
	if !h.set.asksExamples() {
		request.Examples = 0
	} else if request.Examples < 1 || request.Examples > wire.MaxExamples {
		return nil, fmt.Errorf("%d examples to train on; the number must be 1 to %d", request.Examples,
			wire.MaxExamples)
	}

	t := &request.Participant.Task
	t.Client, t.Clients, t.Classes = client, h.set.Clients, len(request.RunSpec.Classes)
	request.Participant.Digest = request.Backbone
	card := &card{JoinRequest: request, key: peer.Verifier}
	if err := h.examine(h.members.roster(), card); err != nil {
		return nil, err
	}

	var roster roster
	var why error
	for ok := false; !ok; {
		roster = h.members.roster()
		if why, err = h.judge(roster, client, peer, instance, card); err != nil {
			return nil, err
		}
		session, ok = h.members.admit(h.over, roster.version, client, card, instance, why != nil)
	}

	if err := h.save(client); err != nil {
		return session, ownError{err}
	}

	for other, o := range roster.clients {
		if o.joined && o.Numerics != card.Numerics && other != client {
			h.set.Log.Warn("two clients round differently (other processors, libraries or settings of runtime), so "+
				"the bytes of this run are not promised; compare promptfed doctor on both", "client", client,
				"other", other)
			break
		}
	}

	return session, why
}

// judge refuses a request to join, or returns why the client must wait although its request counts for the majority.
func (h *Server) judge(roster roster, client int, peer certs.Peer, instance string, card *card) (waits, refused error) {
	one := &roster.clients[client]
	if err := h.checkKey(one, peer); err != nil {
		return nil, err
	}

	if one.connected && one.session.instance != instance {
		return nil, laterError(fmt.Sprintf("another process runs as this client: client %d is connected; stop it, or "+
			"wait a moment", client))
	}

	if err := roster.checkFixed(h.set, card.JoinRequest); err != nil { // the run may have begun since
		return nil, err
	}

	if err := one.differs(card); err != nil && (roster.began || h.set.Resume) {
		return nil, err
	}

	why := h.disagrees(roster, client, card)
	if why != nil && !errors.As(why, new(laterError)) {
		return nil, why
	}

	return why, nil
}

// differs returns an error if a client that takes part says something else of itself than before. What others got
// depends on it.
func (m *member) differs(c *card) error {
	old, now := m.Participant, c.Participant
	old.Task.Clients = now.Task.Clients // the server's number, of which the client says nothing
	if !m.joined || old.Task == now.Task && old.Domain == now.Domain && old.Digest == now.Digest &&
		m.Examples == c.Examples {
		return nil
	}

	return fmt.Errorf("client %d takes part with backbone %s, domain %q and %d examples, and not with others: start "+
		"it with the bundle and the images of its first start", now.Task.Client, old.Task.Backbone, old.Domain,
		m.Examples)
}
