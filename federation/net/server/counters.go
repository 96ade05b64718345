package server

import (
	"cmp"
	"slices"
	"sync"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
)

// counters holds what the server counts.
type counters struct {
	mu  sync.Mutex
	now counts
}

// counts are those since the server started.
type counts struct {
	wire.Totals
	clients []tally
	limited message.LimitedClients // since the last Report
}

// tally is the counts of a client.
type tally struct {
	replies, refused int
	up, down         int64
	reason           string // why its last reply, or its request to join, was refused
	missed           int    // missed deadlines, each missCost, minus answers, from 0 to deadlines of them
	took             int    // Settings.delay of its last reply
	counted          int    // reduced weight of its last upload, in examples; 0 if it was not reduced
}

// change changes the counts. It takes no other lock.
func (c *counters) change(do func(c *counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(&c.now)
}

// refuse counts a refused reply.
func (c *counts) refuse(client int) {
	c.clients[client].refused++
	c.Refused++
}

// recordRefusal records a refused reply for the round's record and the status.
func (c *counts) recordRefusal(client int, why error) {
	reason := wire.Printable(why.Error())
	c.clients[client].reason = reason
	c.limited.Refused = append(c.limited.Refused, message.Refusal{Client: client, Reason: reason})
}

// tally returns the counts of a client.
func (c *counters) tally(client int) (t tally) {
	c.change(func(c *counts) { t = c.clients[client] })
	return t
}

// Totals returns the server's counts.
func (h *Server) Totals() (t wire.Totals) {
	h.counts.change(func(c *counts) { t = c.Totals })
	return t
}

// Report returns the refused and reduced uploads since the last call, by client.
func (h *Server) Report() (out message.Report) {
	h.counts.change(func(c *counts) { out.LimitedClients, c.limited = c.limited, message.LimitedClients{} })
	slices.SortStableFunc(out.Refused, func(a, b message.Refusal) int { return cmp.Compare(a.Client, b.Client) })
	slices.Sort(out.Unawaited)
	slices.SortStableFunc(out.Cut, func(a, b message.CappedUpload) int { return cmp.Compare(a.Client, b.Client) })
	return out
}
