package transport

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/wire"
)

// counters of a hub since it was opened.
type counters struct {
	up, down, replies, late, refused, refusedJoins, repeats, dropped atomic.Int64
}

// Status is what a server tells about its run.
type Status struct {
	Name    string         `json:"name"`
	Run     string         `json:"run"` // identity
	Round   int            `json:"round"`
	Kind    string         `json:"kind"` // of the order that is out; empty between orders
	Exam    string         `json:"exam,omitempty"`
	Survey  string         `json:"survey,omitempty"`
	Clients []ClientStatus `json:"clients"`
	// Facts are what clients are told of the experiment and of what protects them.
	Facts json.RawMessage `json:"facts,omitempty"`
	Totals
}

// Totals are counted since the server started.
type Totals struct {
	BytesUp      int64 `json:"bytes_up"`   // of replies that counted, with their headers
	BytesDown    int64 `json:"bytes_down"` // of orders, with their headers
	Replies      int64 `json:"replies"`    // that counted
	Late         int64 `json:"late"`       // and repeated ones, dropped
	Refused      int64 `json:"refused"`    // replies
	RefusedJoins int64 `json:"refused_joins"`
	Repeats      int64 `json:"repeats"` // orders given again below the quorum
	// messages without a good signature, of another run, replayed or beyond what a client may send
	Dropped int64 `json:"dropped"`
}

// ClientStatus is one client.
type ClientStatus struct {
	Client   int     `json:"client"`
	Joined   bool    `json:"joined"`
	Left     bool    `json:"left,omitempty"`
	Seen     float64 `json:"seen"` // seconds since it was heard of; -1 for never since the server started
	Doing    string  `json:"doing,omitempty"`
	Backbone string  `json:"backbone,omitempty"`
	Domain   string  `json:"domain,omitempty"`
	Asked    bool    `json:"asked,omitempty"`    // has an order
	Answered bool    `json:"answered,omitempty"` // and answered it
	Examples int     `json:"examples,omitempty"` // that it says to train on
	Counted  int     `json:"counted,omitempty"`  // what its last upload was averaged with, where that is less
	Reason   string  `json:"reason,omitempty"`   // why a reply was refused last
	Replies  int     `json:"replies"`
	Refused  int     `json:"refused"`
	Up       int64   `json:"up"`
	Down     int64   `json:"down"`
}

// Totals are the hub's.
func (h *Hub) Totals() Totals {
	c := &h.count
	return Totals{BytesUp: c.up.Load(), BytesDown: c.down.Load(), Replies: c.replies.Load(), Late: c.late.Load(),
		Refused:      c.refused.Load(),
		RefusedJoins: c.refusedJoins.Load(), Repeats: c.repeats.Load(), Dropped: c.dropped.Load()}
}

// Status is how the run goes.
func (h *Hub) Status() Status {
	s := Status{Name: h.set.Name, Run: h.set.ID, Facts: h.set.Facts, Totals: h.Totals()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now != nil {
		s.Round, s.Kind, s.Exam, s.Survey = h.now.order.Round, string(h.now.order.Kind), h.now.order.Set,
			h.now.order.Statistic
	}
	for i, k := range h.known {
		c := ClientStatus{Client: i, Joined: k.Member.Joined, Left: k.left, Seen: -1, Doing: k.doing,
			Backbone: k.Member.Task.Backbone,
			Domain:   k.Member.Domain, Replies: k.replies, Refused: k.refused, Up: k.up, Down: k.down,
			Examples: k.Examples, Counted: k.counted, Reason: k.reason}
		if !k.seen.IsZero() {
			c.Seen = time.Since(k.seen).Seconds()
		}
		if h.now != nil {
			_, c.Answered = h.now.got[i]
			c.Asked = h.now.given[i] != ""
		}
		s.Clients = append(s.Clients, c)
	}
	return s
}

func orderSize(o message.Instruction) int { return wire.Size(o.Tensors()) }
