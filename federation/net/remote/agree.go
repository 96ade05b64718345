package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/atomicfile"
)

// A majority decides once, at the start of the run, what clients must have in common and the configuration leaves open
// (docs/distributed.md). Until then nobody is refused because of another client.
//
// Participant.Joined means that a client's request to join counts: until the start it may be asked, from then on it
// takes part. A client whose request does not count waits. A client that is left out has no request, only its known
// key.

// hasRequest reports whether there is a client's request to join.
func (k *clientRecord) hasRequest() bool { return len(k.RunSpec.Classes) > 0 }

// counts reports whether others must agree with this client. The request of a client with an invalid certificate is
// forgotten.
func (k *clientRecord) counts() bool { return k.Participant.Joined && k.lapsed == "" }

// leaveOut forgets a client's request and asks the client to join again. Server.mu must be held.
func (h *Server) leaveOut(client int) error {
	k := &h.clients[client]
	k.JoinRequest = protocol.JoinRequest{Proof: k.Proof}
	return h.askAgain(client)
}

// askAgain stores the remaining request of a client and asks the client to join again. Server.mu must be held.
func (h *Server) askAgain(client int) error {
	k := &h.clients[client]
	if k.session != nil {
		k.session.end(errors.New("join again"))
	}
	return h.writeMember(certs.UserOf(client), k.JoinRequest)
}

// fixedBy returns the terms of the configuration, with those of a client where the configuration leaves them open.
func (s Settings) fixedBy(client spec.RunSpec) spec.RunSpec {
	out := s.RunSpec
	if len(out.Classes) == 0 {
		out.Classes = client.Classes
	}
	if out.Template == "" {
		out.Template = client.Template
	}
	out.EvaluationSets = client.EvaluationSets
	return out
}

// checkFixed reports how a client differs from the configuration and, after the start, from the decision. Server.mu
// must be held.
func (h *Server) checkFixed(c protocol.JoinRequest) error {
	agreed := h.runSpec
	if !h.began {
		agreed = h.set.fixedBy(c.RunSpec)
	}
	if err := agreed.Mismatch(c.RunSpec); err != nil {
		return err
	}
	if len(h.set.Backbones) > 0 || h.began {
		return h.checkDim(c)
	}
	return nil
}

// A client's feature dimension may be freeDim, that of common backbones, or dimFactor times that of the run's own
// backbones, whichever is larger: methods compute with it on the server, in up to its third power.
const freeDim, dimFactor = 1024, 2

// usualDim returns the largest feature dimension of the server's own backbones or, without any, the lower median of the
// clients that joined; 0 for none. Server.mu must be held.
func (h *Server) usualDim() (dim int, whose string) {
	for _, own := range h.set.Backbones {
		dim = max(dim, own.Task.Dim)
	}
	if dim > 0 {
		return dim, "the server's backbones"
	}
	var dims []int
	for k := range h.clients {
		if h.clients[k].counts() {
			dims = append(dims, h.clients[k].Participant.Task.Dim)
		}
	}
	if len(dims) == 0 {
		return 0, ""
	}
	slices.Sort(dims)
	return dims[(len(dims)-1)/2], "half of the clients"
}

// checkDim refuses a client whose feature dimension is much larger than the usual one. Server.mu must be held.
func (h *Server) checkDim(c protocol.JoinRequest) error {
	usual, whose := h.usualDim()
	if most := max(freeDim, dimFactor*usual); usual > 0 && c.Participant.Task.Dim > most {
		return fmt.Errorf("backbone %s has features of dimension %d; at most %d are accepted, as those of %s have %d "+
			"or fewer: use another backbone, or give the server the files of this one", c.Participant.Task.Backbone,
			c.Participant.Task.Dim, most, whose, usual)
	}
	return nil
}

// checkOwn reports how a client's backbone differs from the server's own one of the same name.
func (h *Server) checkOwn(c protocol.JoinRequest) error {
	own, ok := h.set.Backbones[c.Participant.Task.Backbone]
	if !ok {
		return nil
	}
	text, err := own.Tokens(c.RunSpec.Classes, c.RunSpec.Template)
	if err != nil {
		return fmt.Errorf("the text tokens of the server's backbone: %w", err)
	}
	fixed := protocol.JoinRequest{Backbone: own.Digest, Tokens: text}
	fixed.Participant.Task = own.Task
	return otherBackbone(fixed, "the server", c)
}

// backboneOf describes the properties that clients with the same backbone must share.
func backboneOf(c protocol.JoinRequest) string {
	t := c.Participant.Task
	t.Client, t.Clients, t.Classes = 0, 0, 0
	return fmt.Sprintf("%+v %q %q", t, c.Backbone, c.Tokens)
}

// otherBackbone describes how a client's backbone differs from another one with the same name, or from the server's.
func otherBackbone(one protocol.JoinRequest, whose string, c protocol.JoinRequest) error {
	name := c.Participant.Task.Backbone
	if one.Participant.Task.Backbone != name || backboneOf(one) == backboneOf(c) {
		return nil
	}
	return fmt.Errorf("backbone %s has other weights or another vocabulary (%.12s, %.12s) than %s's (%.12s, %.12s); "+
		"use the same files, or rename the bundle", name, protocol.Printable(c.Backbone), protocol.Printable(c.Tokens),
		whose, protocol.Printable(one.Backbone), protocol.Printable(one.Tokens))
}

// differs describes in one line how a client differs from another; nil if they can train together.
func (h *Server) differs(client int, c protocol.JoinRequest, other int) error {
	o, whose := h.clients[other].JoinRequest, fmt.Sprintf("client %d", other)
	if err := o.RunSpec.MismatchOf(whose, c.RunSpec, fmt.Sprintf("client %d", client)); err != nil {
		return err
	}
	if err := c.Participant.CheckAveragedWith(o.Participant, h.set.Method); err != nil {
		return err
	}
	return otherBackbone(o, whose, c)
}

// disagrees returns why a client cannot take part now, as a laterError if that may change. Server.mu must be held.
func (h *Server) disagrees(client int, c protocol.JoinRequest) error {
	same, all, fixed := 1, 1, false
	for k := range h.clients {
		o := &h.clients[k]
		if k == client || !o.hasRequest() || o.lapsed != "" {
			continue
		}
		alike := o.Participant.Task.Backbone == c.Participant.Task.Backbone
		if !o.Participant.Joined { // it waits too
			if alike {
				all++
				if backboneOf(o.JoinRequest) == backboneOf(c) {
					same++
				}
			}
			continue
		}
		if err := h.differs(client, c, k); err != nil && h.began {
			return err
		} else if err != nil {
			return laterError(err.Error() + "; the majority of those that joined before the start decides; the " +
				"server's --classes and its own backbone decide at once")
		}
		fixed = fixed || alike
	}
	if h.began && !fixed && 2*same <= all {
		return laterError(fmt.Sprintf("backbone %s: %d of the %d clients that wait with a backbone of this name have "+
			"these files, which is no majority; use the same files, or rename the bundle",
			c.Participant.Task.Backbone, same, all))
	}
	return nil
}

// experimentOf returns a digest of the properties that all clients must share: the terms, and the shapes of shared
// parameters. A backbone that the method cannot use is an error.
func (h *Server) experimentOf(c protocol.JoinRequest) (digest string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the method cannot use backbone %s: %v", c.Participant.Task.Backbone, p)
		}
	}()
	b := sha256.New()
	io.WriteString(b, c.RunSpec.String())
	for _, p := range h.set.Method.Params(c.Participant.Task) {
		if p.Owner == method.Shared {
			fmt.Fprintf(b, " %q %v", p.Name, p.Shape)
		}
	}
	return hex.EncodeToString(b.Sum(nil)), nil
}

// majority returns the clients with the text that more than half of all have, or none.
func majority(members []int, text func(client int) string) []int {
	by := map[string][]int{}
	for _, k := range members {
		s := text(k)
		by[s] = append(by[s], k)
	}
	for _, some := range by {
		if 2*len(some) > len(members) {
			return some
		}
	}
	return nil
}

// decide returns the clients that take part: those with the terms of the majority of all that joined, and of these the
// ones with the files of the majority of all with the same backbone. If they are not more than half of all that joined,
// nobody takes part. outvoted are the clients that differ from a majority; others wait. Server.mu must be held.
func (h *Server) decide() (members, outvoted []int) {
	var all []int
	for k := range h.clients {
		if h.clients[k].counts() {
			all = append(all, k)
		}
	}
	agreed := majority(all, func(k int) string { return h.clients[k].experiment })
	byName := map[string][]int{}
	for _, k := range agreed {
		if h.checkDim(h.clients[k].JoinRequest) != nil {
			continue
		}
		name := h.clients[k].Participant.Task.Backbone
		byName[name] = append(byName[name], k)
	}
	for _, k := range all {
		if !slices.Contains(agreed, k) || h.checkDim(h.clients[k].JoinRequest) != nil {
			outvoted = append(outvoted, k)
			continue
		}
		same := majority(byName[h.clients[k].Participant.Task.Backbone],
			func(k int) string { return backboneOf(h.clients[k].JoinRequest) })
		if slices.Contains(same, k) {
			members = append(members, k)
		} else if same != nil {
			outvoted = append(outvoted, k)
		}
	}
	if 2*len(members) <= len(all) {
		return nil, nil
	}
	return members, outvoted
}

// agreement is the file of the decision, which exists from the start of the run.
type agreement struct {
	Version int          `json:"version"`
	RunSpec spec.RunSpec `json:"terms"`
}

const (
	agreementFile    = "agreed"
	agreementVersion = 2
)

// readAgreement restores the decision of a resumed run.
func (h *Server) readAgreement() error {
	var a agreement
	path := h.memberPath(agreementFile)
	there, err := atomicfile.ReadJSON(path, &a)
	if err != nil || !there {
		return err
	}
	if a.Version != agreementVersion {
		return fmt.Errorf("%s has version %d, this program writes version %d; continue the run with the release that "+
			"began it", path, a.Version, agreementVersion)
	}
	if err := h.set.fixedBy(a.RunSpec).Mismatch(a.RunSpec); err != nil {
		return fmt.Errorf("the server's folder does not match what its clients have: %w; choose another --out", err)
	}
	h.began, h.runSpec = true, a.RunSpec
	return nil
}

// begin makes the decision once so many clients are known, and reports whether the run can start. A revoked or excluded
// client counts as known.
func (h *Server) begin(clients int) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, joined := 0, 0
	for k := range h.clients {
		if h.clients[k].Participant.Joined {
			known, joined = known+1, joined+1
		} else if h.clients[k].Proof.Key != nil {
			known++
		}
	}
	if known < clients || joined == 0 || h.began {
		return known >= clients && joined > 0, nil
	}
	members, outvoted := h.decide()
	if len(members) == 0 {
		h.logDisagreement()
		return false, nil
	}
	agreed := h.clients[members[0]].RunSpec
	for k := range h.clients {
		if !h.clients[k].Participant.Joined || slices.Contains(members, k) {
			continue
		}
		var err error
		if slices.Contains(outvoted, k) {
			err = h.outvote(k, members)
		} else {
			err = h.postpone(k)
		}
		if err != nil {
			return false, err
		}
	}
	if err := h.writeMember(agreementFile, agreement{agreementVersion, agreed}); err != nil {
		return false, err
	}
	h.began, h.runSpec = true, agreed
	return true, nil
}

// outvote excludes a client that differs from those that take part. Server.mu must be held.
func (h *Server) outvote(client int, members []int) error {
	k := &h.clients[client]
	why := h.checkDim(k.JoinRequest)
	for _, other := range members {
		if why == nil {
			why = h.differs(client, k.JoinRequest, other)
		}
	}
	if why != nil {
		k.reason = protocol.Printable(why.Error())
	}
	h.set.Log.Warn("a client does not take part: most others agree on something else", "client", client, "reason",
		k.reason)
	return h.leaveOut(client)
}

// postpone lets a client wait until a majority of those with the same backbone has the same files. Server.mu must be
// held.
func (h *Server) postpone(client int) error {
	k := &h.clients[client]
	k.Participant.Joined = false
	k.reason = "of the clients that name the backbone " + k.Participant.Task.Backbone +
		", no majority has the same files"
	h.set.Log.Warn("a client waits", "client", client, "reason", k.reason)
	return h.askAgain(client)
}

// Wait waits until so many clients have joined and most of them agree, and returns what they agreed on.
func (h *Server) Wait(ctx context.Context, clients int) (spec.RunSpec, error) {
	for {
		ready, err := h.begin(clients)
		if ready || err != nil {
			return h.runSpec, err
		}
		select {
		case <-h.joined:
		case <-ctx.Done():
			return h.runSpec, ctx.Err()
		}
	}
}

// logDisagreement logs that the clients disagree, again whenever the disagreement changes. Server.mu must be held.
func (h *Server) logDisagreement() {
	for k := range h.clients {
		if !h.clients[k].counts() {
			continue
		}
		for other := range k {
			if !h.clients[other].counts() {
				continue
			}
			why := h.differs(k, h.clients[k].JoinRequest, other)
			if why == nil {
				continue
			}
			if text := protocol.Printable(why.Error()); text != h.disagreement {
				h.disagreement = text
				h.set.Log.Warn("the clients that joined disagree and no majority agrees; the run waits for more "+
					"clients, or for one to be revoked; --classes FILE decides about classes", "reason", text)
			}
			return
		}
	}
}
