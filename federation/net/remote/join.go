package remote

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/protocol"
)

// join admits the client of a stream, or returns why not.
func (s *session) join(m *protocol.Join) *protocol.JoinAnswer {
	h, out := s.Server, &protocol.JoinAnswer{}
	var c protocol.JoinRequest
	err := h.readJoin(m, &c)
	s.texts = c.RunSpec.TextSize()
	if err == nil {
		c.Proof, s.instance = s.peer.Proof, m.Instance
		err = h.admit(s, c)
	}
	h.mu.Lock()
	k := &h.clients[s.client]
	said := k.reason
	if err != nil {
		out.Reason, out.Later = protocol.Printable(err.Error()), errors.As(err, new(laterError))
		k.reason = out.Reason
		k.refused++
		if !out.Later {
			h.totals.RefusedJoins++
		}
	} else {
		out.Ok, out.Accepted, out.Safe, out.Seq = true, h.accepted[s.client], h.safe[s.client], k.seq
		k.reason = ""
	}
	h.mu.Unlock()
	switch {
	case err == nil:
		s.log.Info("joined", "backbone", protocol.Printable(c.Participant.Task.Backbone), "domain",
			protocol.Printable(c.Participant.Domain))
	case out.Later && out.Reason == said: // a repeated request
	case out.Later:
		s.log.Warn("asked to wait", "reason", out.Reason)
	default:
		s.log.Warn("refused to join", "reason", out.Reason)
	}
	if err == nil || out.Later { // the request of a client that waits counts for the majority
		notify(h.joined)
	}
	return out
}

// readJoin decodes a request to join this run.
func (h *Server) readJoin(m *protocol.Join, c *protocol.JoinRequest) error {
	if m.Run != h.set.ID {
		return errors.New("the server started another run; restart the client")
	}
	if !protocol.ID.MatchString(m.Instance) {
		return fmt.Errorf("%.50q is not an identity", m.Instance)
	}
	return protocol.DecodeStrict(m.Request, c)
}

// laterError is a temporary refusal: the client must ask again.
type laterError string

func (e laterError) Error() string { return string(e) }

// maxDigest is the largest size of a digest in a request to join, in bytes.
const maxDigest = 64

// checkRequest refuses a request to join by its own sizes, before anything is computed from it.
func checkRequest(c protocol.JoinRequest) error {
	t := c.Participant.Task
	if !protocol.Label.MatchString(t.Backbone) || !protocol.Label.MatchString(c.Participant.Domain) {
		return fmt.Errorf("the backbone's name %.100q or the domain %.100q is invalid", t.Backbone,
			c.Participant.Domain)
	}
	if max(len(c.Numerics), len(c.Backbone), len(c.Tokens)) > maxDigest {
		return fmt.Errorf("a digest has more than %d bytes", maxDigest)
	}
	if min(t.Width, t.Dim) < 1 || min(t.Patches, t.ImageSize, t.Tokens, t.VisionWidth, t.VisionLayers, t.VisionUnits,
		t.TextLayers, t.TextUnits) < 0 || max(t.Width, t.Dim, t.Patches, t.Tokens, t.VisionWidth, t.VisionUnits,
		t.TextUnits) > 1<<16 || t.ImageSize > 1<<14 || max(t.VisionLayers, t.TextLayers) > 1<<10 {
		return fmt.Errorf("the backbone has impossible sizes: %+v", t)
	}
	return c.RunSpec.CheckSizes()
}

// examine refuses a request to join that differs from what is decided, and returns the properties that all clients must
// share. It takes Server.mu for comparisons only: a request may have long lists.
func (h *Server) examine(c protocol.JoinRequest) (experiment string, err error) {
	if err := checkRequest(c); err != nil {
		return "", err
	}
	h.mu.Lock()
	err = h.checkFixed(c)
	h.mu.Unlock()
	if err == nil {
		err = h.checkOwn(c)
	}
	if err == nil {
		experiment, err = h.experimentOf(c)
	}
	return experiment, err
}

// admit checks and stores a request to join.
func (h *Server) admit(s *session, c protocol.JoinRequest) error {
	client, t := s.client, &c.Participant.Task
	if !h.set.asksExamples() {
		c.Examples = 0
	} else if c.Examples < 1 || c.Examples > protocol.MaxExamples {
		return fmt.Errorf("%d examples to train on; the number must be 1 to %d", c.Examples, protocol.MaxExamples)
	}
	t.Client, t.Clients, t.Classes = client, h.set.Clients, len(c.RunSpec.Classes)
	c.Participant.Digest = c.Backbone
	experiment, err := h.examine(c)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := &h.clients[client]
	if err := h.checkKey(client, s.peer); err != nil { // another stream may have joined since this one began
		return err
	}
	if k.session != nil && k.session.instance != s.instance {
		return laterError(fmt.Sprintf("another process runs as this client: client %d is connected; stop it, or wait "+
			"a moment", client))
	}
	if err := h.checkFixed(c); err != nil { // the run may have begun since
		return err
	}
	if err := k.changed(c); err != nil && (h.began || h.set.Resume) {
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
	k.JoinRequest, k.experiment = c, experiment
	k.key, k.lapsed = s.peer.Verifier, ""
	if why != nil {
		return why
	}
	if k.session != nil {
		k.session.end(errors.New("the client joined again"))
	}
	k.session, k.seen, k.left = s, time.Now(), false
	return nil
}

// changed returns an error if a client that takes part says something else of itself than before. What others got
// depends on it.
func (k *clientRecord) changed(c protocol.JoinRequest) error {
	old, now := k.Participant, c.Participant
	if !old.Joined || old.Task == now.Task && old.Domain == now.Domain && old.Digest == now.Digest &&
		k.Examples == c.Examples {
		return nil
	}
	return fmt.Errorf("client %d takes part with backbone %s, domain %q and %d examples, and not with others: start "+
		"it with the bundle and the images of its first start", now.Task.Client, old.Task.Backbone, old.Domain,
		k.Examples)
}

// clientRecord is the server's state of a client. Server.mu guards it.
type clientRecord struct {
	protocol.JoinRequest
	experiment string         // digest of what its request must share with others, by experimentOf
	key        certs.Verifier // of its certificate
	session    *session       // its stream; nil if it is not connected
	pending    *pending       // the instruction that it must answer; nil for none
	seq        int64          // number of its newest instruction
	seen       time.Time      // when it was connected last
	left       bool           // its user stopped it
	lapsed     string         // why its certificate is not valid any more
	budget     *rate.Limiter
	joining    *semaphore.Weighted // streams that are joining

	replies, refused int
	up, down         int64
	missed           int    // missed deadlines, each missCost, minus answers, from 0 to patience deadlines; see silent
	reason           string // why its last reply was refused
	counted          int    // reduced weight of its last upload, in examples; 0 if it was not reduced
}
