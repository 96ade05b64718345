package exchange

import (
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"promptfed/federation/transport/subjects"
)

// Budget limits the rate of messages of one user. Each message takes as much of it as it costs the server. A message
// without budget is dropped and counted. The embedded NATS server disconnects a user that goes on all the same.
type Budget struct {
	*Host
	rate *rate.Limiter
}

// Costs of messages, where a piece costs 1 and so do 64 KiB. An honest member needs a few hundred a second.
const (
	budgetRate   = 4000 // a second
	budgetBurst  = 10 * budgetRate
	QuestionCost = budgetRate / 2  // hello, join, to leave and to come back: the server signs, logs and sends orders
	StatusCost   = budgetRate / 20 // the answer is made ten times a second at most
	signedCost   = 10              // a signature is verified
)

// MaxQueued is how many messages of a user may wait until somebody looks at them; an honest one has few on their way.
const MaxQueued = 64

// NewBudget is that of one user.
func (h *Host) NewBudget() Budget { return Budget{h, rate.NewLimiter(budgetRate, budgetBurst)} }

// Allow takes what a message costs from the budget, and tells whether there was as much.
func (b Budget) Allow(cost int) bool {
	ok := b.rate.AllowN(time.Now(), cost)
	if !ok {
		b.Counters.Dropped.Add(1)
	}
	return ok
}

// costOf is what a member's message costs, whatever is in it.
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

// Hear is Subscribe for what one user sends.
func (h *Host) Hear(subject string, do nats.MsgHandler) error {
	s, err := h.Subscribe(subject, do)
	if err != nil {
		return err
	}
	return s.SetPendingLimits(MaxQueued, 4*int(h.Conn.MaxPayload()))
}
