package exchange

import (
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"promptfed/federation/transport/subjects"
)

// Budget limits the rate of messages of one user. Each message costs as much of it as it costs the server. A message
// beyond the budget is dropped and counted. The embedded NATS server disconnects a user that continues nevertheless.
type Budget struct {
	*Host
	rate *rate.Limiter
}

// Costs of messages; a piece and 64 KiB cost 1 each. An honest member needs a few hundred a second.
const (
	budgetRate   = 4000 // a second
	budgetBurst  = 10 * budgetRate
	QuestionCost = budgetRate / 2  // hello, join, leaving, returning: the server signs, logs and sends instructions
	StatusCost   = budgetRate / 20 // the answer is made ten times a second at most
	signedCost   = 10              // a signature is verified
)

// MaxQueued is the largest number of unread messages of a user; an honest user has few.
const MaxQueued = 64

// NewBudget returns the budget of one user.
func (h *Host) NewBudget() Budget { return Budget{h, rate.NewLimiter(budgetRate, budgetBurst)} }

// Allow subtracts the cost of a message from the budget, and reports whether the budget was sufficient.
func (b Budget) Allow(cost int) bool {
	ok := b.rate.AllowN(time.Now(), cost)
	if !ok {
		b.Counters.Dropped.Add(1)
	}
	return ok
}

// costOf returns the cost of a member's message, independent of its content.
func costOf(m *nats.Msg) int {
	cost := len(m.Data) / pieceSize
	switch subjects.VerbOf(m.Subject) {
	case subjects.HelloVerb, subjects.JoinVerb:
		return cost + QuestionCost
	case subjects.HeartbeatVerb, subjects.ReplyVerb:
		return cost + signedCost
	}
	return cost + 1
}

// SubscribeUser subscribes to the messages of one user, with a bounded queue.
func (h *Host) SubscribeUser(subject string, do nats.MsgHandler) error {
	s, err := h.Subscribe(subject, do)
	if err != nil {
		return err
	}
	return s.SetPendingLimits(MaxQueued, 4*int(h.Conn.MaxPayload()))
}
