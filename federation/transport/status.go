package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Status is what a server tells about its run.
type Status struct {
	Name      string         `json:"name"`
	Run       string         `json:"run"` // identity
	Round     int            `json:"round"`
	Kind      string         `json:"kind"` // of the order that is out; empty between orders
	Set       string         `json:"exam,omitempty"`
	Statistic string         `json:"survey,omitempty"`
	Clients   []ClientStatus `json:"clients"`
	// Secret tells that differential privacy counts on a secret sample of clients: what tells which of them train is
	// left out, and with SecretSize what tells how many.
	Secret     bool `json:"secret_sample,omitempty"`
	SecretSize bool `json:"secret_size,omitempty"`
	// Facts are what clients learn of the experiment and of what protects them.
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
	Asked    bool    `json:"asked,omitempty"` // has an order
	// no round waits for it until it answers
	Unawaited bool   `json:"unawaited,omitempty"`
	Answered  bool   `json:"answered,omitempty"` // and answered it
	Examples  int    `json:"examples,omitempty"` // that it says to train on
	Counted   int    `json:"counted,omitempty"`  // what its last upload was averaged with, where that is less
	Reason    string `json:"reason,omitempty"`   // why a reply was refused last
	Replies   int    `json:"replies"`
	Refused   int    `json:"refused"`
	Up        int64  `json:"up"`
	Down      int64  `json:"down"`
}

// Totals are the server's.
func (h *Server) Totals() Totals {
	c := &h.Counters
	return Totals{BytesUp: c.Up.Load(), BytesDown: c.Down.Load(), Replies: c.Replies.Load(), Late: c.Late.Load(),
		Refused:      c.Refused.Load(),
		RefusedJoins: c.RefusedJoins.Load(), Repeats: c.Repeats.Load(), Dropped: c.Dropped.Load()}
}

// Status is how the run goes.
func (h *Server) Status() Status {
	s := Status{Name: h.set.Name, Run: h.set.ID, Facts: h.set.Facts, Totals: h.Totals()}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if h.current != nil {
		s.Round, s.Kind, s.Set, s.Statistic = h.current.order.Round, string(h.current.order.Kind), h.current.order.Set,
			h.current.order.Statistic
	}
	for i, k := range h.clients {
		c := ClientStatus{Client: i, Joined: k.Participant.Joined, Left: k.Left, Seen: -1, Doing: k.Activity,
			Backbone: k.Participant.Task.Backbone, Domain: k.Participant.Domain, Replies: k.Replies, Refused: k.Refused,
			Up: k.Up, Down: k.Down, Examples: k.Examples, Counted: k.counted, Reason: k.reason,
			Unawaited: k.missed == patience}
		if !k.Seen.IsZero() {
			c.Seen = time.Since(k.Seen).Seconds()
		}
		if h.current != nil {
			_, c.Answered = h.current.got[i]
			c.Asked = h.current.given[i] != ""
		}
		s.Clients = append(s.Clients, c)
	}
	s.hide(h.set.Privacy)
	return s
}

// hide leaves out what tells who trains. A client is heard of whenever it replies, so that only whole steps of
// heardStep tell nothing.
func (s *Status) hide(p Privacy) {
	if s.Secret, s.SecretSize = p.Sample, p.Size; !p.Sample {
		return
	}
	for i, c := range s.Clients {
		if c.Seen > 0 {
			c.Seen = math.Floor(c.Seen/heardStep) * heardStep
		}
		s.Clients[i] = ClientStatus{Client: c.Client, Joined: c.Joined, Left: c.Left, Seen: c.Seen,
			Backbone: c.Backbone, Domain: c.Domain}
	}
	if p.Size {
		s.Kind, s.Set, s.Statistic = "", "", ""
		s.Totals = Totals{RefusedJoins: s.RefusedJoins, Dropped: s.Dropped}
	}
}

// heardStep is a multiple, in seconds, of the time between two heartbeats of a client.
const heardStep = 10

func orderSize(o message.Instruction) int { return message.EncodedSize(o.Tensors()) }

// AskStatus asks the server of a run how it goes. The connection must have StatusInbox for its answers.
func AskStatus(ctx context.Context, nc *nats.Conn, run string) (*Status, error) {
	if err := subjects.CheckName(run); err != nil {
		return nil, err
	}
	m, err := nc.RequestWithContext(ctx, subjects.Names(run).StatusRequest(), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("no server runs %q there", run)
	}
	if err != nil {
		return nil, err
	}
	return readStatus(m.Data)
}

// readStatus reads a status, whose texts go to a terminal.
func readStatus(b []byte) (*Status, error) {
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("the server's status: %w", err)
	}
	for _, text := range []*string{&s.Name, &s.Run, &s.Kind, &s.Set, &s.Statistic} {
		*text = protocol.Printable(*text)
	}
	for i := range s.Clients {
		c := &s.Clients[i]
		c.Doing, c.Backbone, c.Domain = protocol.Printable(c.Doing), protocol.Printable(c.Backbone),
			protocol.Printable(c.Domain)
	}
	return &s, nil
}
