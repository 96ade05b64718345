package server

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"promptfed/federation/net/wire"
)

// shownStatus is the encoded status, which is encoded at most once every statusAge.
type shownStatus struct {
	mu   sync.Mutex
	text []byte
	at   time.Time
}

// statusAge is how long an encoded status is reused.
const statusAge = 100 * time.Millisecond

// encode returns the encoded status.
func (s *shownStatus) encode(status func() wire.Status) (text []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > statusAge {
		s.text, err = json.Marshal(status())
		s.at = time.Now()
	}
	return s.text, err
}

// Status returns the state of the run.
func (h *Server) Status() wire.Status {
	status := wire.Status{Name: h.set.Name, Run: h.set.ID, Round: int(h.round.Load()), Facts: h.set.Facts,
		Insecure: !h.identity.Certified()}
	current := h.current.Load()
	if current != nil {
		instruction := current.instruction
		status.Kind, status.Set, status.Statistic = string(instruction.Kind), instruction.Set, instruction.Statistic
	}

	for i, m := range h.members.roster().clients {
		k := h.counts.tally(i)
		clientStatus := wire.ClientStatus{Client: i, Joined: m.joined, Left: m.left, Seen: -1,
			Backbone: m.Participant.Task.Backbone, Domain: m.Participant.Domain, Replies: k.replies,
			Refused: k.refused, Up: k.up, Down: k.down, Examples: m.Examples, Counted: k.counted, Reason: k.reason,
			Unawaited: k.silent()}

		if m.connected {
			clientStatus.Seen, clientStatus.Doing = 0, h.mail.box(i).doing()
		} else if !m.seen.IsZero() {
			clientStatus.Seen = time.Since(m.seen).Seconds()
		}

		if current != nil {
			clientStatus.Asked, clientStatus.Answered, _ = current.state(i)
		}

		status.Clients = append(status.Clients, clientStatus)
	}

	status.Totals = h.Totals()
	hide(&status, h.set.Privacy)
	return status
}

// hide removes everything that shows who trains.
func hide(status *wire.Status, p Privacy) {
	if status.Secret, status.SecretSize = p.Sample, p.Size; !p.Sample {
		return
	}

	for i, c := range status.Clients {
		status.Clients[i] = wire.ClientStatus{Client: c.Client, Joined: c.Joined, Left: c.Left, Seen: c.Seen,
			Backbone: c.Backbone, Domain: c.Domain}
	}

	if p.Size {
		status.Kind, status.Set, status.Statistic = "", "", ""
		status.Totals = wire.Totals{RefusedJoins: status.RefusedJoins, Dropped: status.Dropped}
	}
}

// doing returns what a connected client is doing.
func (b mailbox) doing() string {
	if b.pending == nil {
		return "waits"
	}
	return fmt.Sprintf("round %d, %s", b.pending.Round+1, b.pending.Kind)
}
