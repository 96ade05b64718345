package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/wire"
)

// A majority decides once, at the start of the run, what clients must have in common and the configuration leaves open
// (docs/distributed.md). Until then nobody is refused because of another client. A client whose request does not count
// waits.

// checkFixed reports how a client differs from the configuration and, after the start, from the decision.
func (r roster) checkFixed(set Settings, request wire.JoinRequest) error {
	agreed := r.terms
	if !r.began {
		agreed = set.RunSpec.FixedBy(request.RunSpec)
	}

	if err := agreed.Mismatch(request.RunSpec); err != nil {
		return err
	}

	if len(set.Backbones) > 0 || r.began {
		return r.dimCheck(set)(request)
	}

	return nil
}

// A client's feature dimension may be freeDim, that of common backbones, or dimFactor times that of the run's own
// backbones, whichever is larger: methods compute with it on the server, in up to its third power.
const freeDim, dimFactor = 1024, 2

// usualDim returns the largest feature dimension of the server's own backbones or, without any, the lower median of the
// clients that joined; 0 for none.
func (r roster) usualDim(set Settings) (dim int, whose string) {
	for _, own := range set.Backbones {
		dim = max(dim, own.Task.Dim)
	}

	if dim > 0 {
		return dim, "the server's backbones"
	}

	var dims []int
	for _, m := range r.clients {
		if m.counts() {
			dims = append(dims, m.Participant.Task.Dim)
		}
	}

	if len(dims) == 0 {
		return 0, ""
	}

	slices.Sort(dims)
	return dims[(len(dims)-1)/2], "half of the clients"
}

// dimCheck returns a function that refuses a client whose feature dimension is much larger than the usual one.
func (r roster) dimCheck(set Settings) func(wire.JoinRequest) error {
	usual, whose := r.usualDim(set)
	most := max(freeDim, dimFactor*usual)
	return func(c wire.JoinRequest) error {
		if usual > 0 && c.Participant.Task.Dim > most {
			return fmt.Errorf("backbone %s has features of dimension %d; at most %d are accepted, as those of %s "+
				"have %d or fewer: use another backbone, or give the server the files of this one",
				c.Participant.Task.Backbone, c.Participant.Task.Dim, most, whose, usual)
		}
		return nil
	}
}

// checkOwn reports how a client's backbone differs from the server's own one of the same name.
func (h *Server) checkOwn(request wire.JoinRequest) error {
	own, ok := h.set.Backbones[request.Participant.Task.Backbone]
	if !ok {
		return nil
	}

	text, err := own.Tokens(request.RunSpec.Classes, request.RunSpec.Template)
	if err != nil {
		return fmt.Errorf("the text tokens of the server's backbone: %w", err)
	}

	fixed := wire.JoinRequest{Backbone: own.Digest, Tokens: text}
	fixed.Participant.Task = own.Task
	return otherBackbone(fixed, "the server", request)
}

// filesOf describes the properties that clients with the same backbone must share.
func filesOf(c wire.JoinRequest) string {
	t := c.Participant.Task
	t.Client, t.Clients, t.Classes = 0, 0, 0
	return fmt.Sprintf("%+v %q %q", t, c.Backbone, c.Tokens)
}

// otherBackbone describes how a client's backbone differs from another one with the same name, or from the server's.
func otherBackbone(one wire.JoinRequest, whose string, c wire.JoinRequest) error {
	name := c.Participant.Task.Backbone
	if one.Participant.Task.Backbone != name || filesOf(one) == filesOf(c) {
		return nil
	}
	return fmt.Errorf("backbone %s has other weights or another vocabulary (%.12s, %.12s) than %s's (%.12s, %.12s); "+
		"use the same files, or rename the bundle", name, wire.Printable(c.Backbone), wire.Printable(c.Tokens),
		whose, wire.Printable(one.Backbone), wire.Printable(one.Tokens))
}

// differs describes in one line how a client differs from another; nil if they can train together.
func (h *Server) differs(client int, card *card, other int, otherCard *card) error {
	if card.experiment == otherCard.experiment &&
		card.files == otherCard.files { // the usual case, without any comparison of texts
		return nil
	}

	whose := fmt.Sprintf("client %d", other)
	if err := otherCard.RunSpec.MismatchOf(whose, card.RunSpec, fmt.Sprintf("client %d", client)); err != nil {
		return err
	}

	if err := message.CheckAveraged(card.Participant.Task, otherCard.Participant.Task, h.set.Method); err != nil {
		return err
	}

	return otherBackbone(otherCard.JoinRequest, whose, card.JoinRequest)
}

// disagrees returns why a client cannot take part now, as a laterError if that may change.
func (h *Server) disagrees(roster roster, client int, card *card) error {
	own := roster.clients[client]
	same, all, fixed := 1, 1, own.joined && own.files == card.files // it takes part already
	for k, member := range roster.clients {
		if k == client || !member.hasRequest() || member.lapsed != "" {
			continue
		}

		alike := member.Participant.Task.Backbone == card.Participant.Task.Backbone
		if !member.joined { // it waits too
			if alike {
				all++
				if member.files == card.files {
					same++
				}
			}
			continue
		}

		if err := h.differs(client, card, k, member.card); err != nil && roster.began {
			return err
		} else if err != nil {
			return laterError(err.Error() + "; the majority of those that joined before the start decides; the " +
				"server's --classes and its own backbone decide at once")
		}

		fixed = fixed || alike
	}

	if roster.began && !fixed && 2*same <= all {
		return laterError(fmt.Sprintf("backbone %s: %d of the %d clients that wait with a backbone of this name have "+
			"these files, which is no majority; use the same files, or rename the bundle",
			card.Participant.Task.Backbone, same, all))
	}

	return nil
}

// experimentOf returns a digest of the properties that all clients must share: the terms, and the shapes of shared
// parameters. A backbone that the method cannot use is an error.
func (h *Server) experimentOf(c wire.JoinRequest) (digest string, err error) {
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
// nobody takes part. outvoted are the clients that differ from a majority; wait are the others that joined.
func (r roster) decide(set Settings) (members, outvoted, wait []int) {
	var all []int
	for k, m := range r.clients {
		if m.counts() {
			all = append(all, k)
		}
	}

	check := r.dimCheck(set)
	fits, byName := map[int]bool{}, map[string][]int{}
	for _, k := range majority(all, func(k int) string { return r.clients[k].experiment }) {
		if check(r.clients[k].JoinRequest) == nil {
			name := r.clients[k].Participant.Task.Backbone
			fits[k], byName[name] = true, append(byName[name], k)
		}
	}

	takesPart, decided := map[int]bool{}, map[string]bool{}
	for name, alike := range byName {
		for _, k := range majority(alike, func(k int) string { return r.clients[k].files }) {
			takesPart[k], decided[name] = true, true
		}
	}

	for k, m := range r.clients {
		switch {
		case takesPart[k]:
			members = append(members, k)
		case m.counts() && (!fits[k] || decided[m.Participant.Task.Backbone]):
			outvoted = append(outvoted, k)
		case m.joined:
			wait = append(wait, k)
		}
	}

	if 2*len(members) <= len(all) {
		return nil, nil, nil
	}

	return members, outvoted, wait
}

// begin makes the decision once so many clients are known, and reports whether the run can start. A revoked or excluded
// client counts as known. The files have the decision before any client gets an instruction.
func (h *Server) begin(clients int) (ready bool, err error) {
	var roster roster
	var members, outvoted, wait []int
	for agreed := false; !agreed; {
		roster = h.members.roster()
		known, joined := 0, 0
		for _, m := range roster.clients {
			if m.joined {
				known, joined = known+1, joined+1
			} else if m.Proof.Key != nil {
				known++
			}
		}

		if known < clients || joined == 0 || roster.began {
			return known >= clients && joined > 0, nil
		}

		if members, outvoted, wait = roster.decide(h.set); len(members) == 0 {
			h.logDisagreement(roster)
			return false, nil
		}

		agreed = h.members.agree(roster.version, roster.clients[members[0]].RunSpec, outvoted, wait)
	}

	for _, k := range slices.Concat(outvoted, wait) {
		said, why := "a client waits",
			"of the clients that name the backbone "+roster.clients[k].Participant.Task.Backbone+
				", no majority has the same files"
		if slices.Contains(outvoted, k) {
			said, why = "a client does not take part: most others agree on something else", h.outvoted(roster, k,
				members)
		}
		h.counts.change(func(c *counts) { c.clients[k].reason = why })
		h.set.Log.Warn(said, "client", k, "reason", why)
		if err := h.save(k); err != nil {
			return false, err
		}
	}

	// The last file makes the decision: after a crash before it, the clients decide again.
	return true, h.write(agreementFile, agreement{agreementVersion, roster.clients[members[0]].RunSpec})
}

// outvoted returns how a client differs from those that take part.
func (h *Server) outvoted(r roster, client int, members []int) string {
	why := r.dimCheck(h.set)(r.clients[client].JoinRequest)
	for _, other := range members {
		if why == nil {
			why = h.differs(client, r.clients[client].card, other, r.clients[other].card)
		}
	}

	if why == nil {
		return ""
	}

	return wire.Printable(why.Error())
}

// Wait waits until so many clients have joined and most of them agree, and returns what they agreed on.
func (h *Server) Wait(ctx context.Context, clients int) (spec.RunSpec, error) {
	for {
		ready, err := h.begin(clients)
		if ready || err != nil {
			return h.members.roster().terms, err
		}
		select {
		case <-h.members.changed:
		case <-ctx.Done():
			return h.members.roster().terms, ctx.Err()
		}
	}
}

// logDisagreement logs that the clients disagree, again whenever the disagreement changes.
func (h *Server) logDisagreement(r roster) {
	for k, m := range r.clients {
		if !m.counts() {
			continue
		}

		for other, o := range r.clients[:k] {
			if !o.counts() {
				continue
			}
			why := h.differs(k, m.card, other, o.card)
			if why == nil {
				continue
			}
			if text := wire.Printable(why.Error()); text != h.disagreement {
				h.disagreement = text
				h.set.Log.Warn("the clients that joined disagree and no majority agrees; the run waits for more "+
					"clients, or for one to be revoked; --classes FILE decides about classes", "reason", text)
			}
			return
		}
	}
}
