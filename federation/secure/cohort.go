package secure

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/federation/secagg"
	"promptfed/runtime/tensor"
)

// cohort turns an order to train into the four steps of a session.
type cohort struct {
	engine.Cohort
	l *Layer
}

// round is one session under way.
type round struct {
	*cohort
	order   engine.Order
	server  *secagg.Server
	terms   secagg.Terms
	out     engine.Reply
	refused int // messages that were none
}

// Run gives one reply for all clients to an order to train, and passes others on.
func (c *cohort) Run(ctx context.Context, o engine.Order) ([]engine.Reply, error) {
	if o.Kind != engine.Train {
		return c.Cohort.Run(ctx, o)
	}
	r := &round{cohort: c, order: o, out: engine.Reply{Client: method.Summed}}
	var err error
	r.terms = secagg.Terms{Threshold: c.l.threshold(len(o.Clients)), Length: c.l.length(o.Shared)}
	if r.terms.Ring, err = c.l.ring(o.Of); err != nil {
		return nil, err
	}
	if _, err := rand.Read(r.terms.Session[:]); err != nil {
		return nil, err
	}
	if r.server, err = secagg.NewServer(r.terms); err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, fmt.Errorf("round %d: %w", o.Round, err)
	}
	return []engine.Reply{r.out}, nil
}

func (r *round) run(ctx context.Context) error {
	took, err := r.ask(ctx, keysStep, r.order.Clients, pack(sessionName, encodeTerms(r.terms)), keysName,
		func(id int, b []byte) error {
			k, err := secagg.DecodeKeys(b)
			if err != nil {
				return err
			}
			return r.server.Join(id, k)
		})
	if err != nil {
		return err
	}
	roster, err := r.server.Roster()
	if err != nil {
		return err
	}
	took, err = r.ask(ctx, sharesStep, took, pack(rosterName, roster.Encode()), sharesName,
		func(id int, b []byte) error {
			e, err := secagg.DecodeEnvelopes(b)
			if err != nil {
				return err
			}
			return r.server.Deal(id, e)
		})
	if err != nil {
		return err
	}
	inboxes, err := r.server.Inboxes()
	if err != nil {
		return err
	}
	if took, err = r.train(ctx, took, inboxes); err != nil {
		return err
	}
	q, err := r.server.Unmask()
	if err != nil {
		return err
	}
	if _, err = r.ask(ctx, revealStep, took, pack(questionName, q.Encode()), revealName, func(id int, b []byte) error {
		a, err := secagg.DecodeShares(b)
		if err != nil {
			return err
		}
		return r.server.Reveal(id, a)
	}); err != nil {
		return err
	}
	return r.finish()
}

// ask runs one step beside training with clients and gives those whose messages were taken.
func (r *round) ask(ctx context.Context, step string, clients []int, down tensor.Map, name string, take func(int,
	[]byte) error) ([]int, error) {
	o := engine.Order{Kind: engine.Ask, Round: r.order.Round, Survey: step, Clients: clients, Of: r.order.Of,
		Shared: tensor.Map{}, Down: down}
	return r.send(ctx, o, name, take)
}

// train sends the order to train with what each client got from the others.
func (r *round) train(ctx context.Context, clients []int, inboxes map[int]secagg.Envelopes) ([]int, error) {
	o := r.order
	o.Clients, o.Sealed, o.Each = clients, true, map[int]tensor.Map{}
	for _, id := range clients {
		o.Each[id] = pack(inboxName, inboxes[id].Encode())
		maps.Copy(o.Each[id], r.order.Each[id])
	}
	return r.send(ctx, o, maskedName, func(id int, b []byte) error {
		y, err := r.terms.Ring.Decode(b)
		if err != nil {
			return err
		}
		return r.server.Add(id, y)
	})
}

// send runs an order. What a client sends that is no message counts as if it had sent nothing.
func (r *round) send(ctx context.Context, o engine.Order, name string, take func(int, []byte) error) (took []int,
	err error) {
	replies, err := r.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, reply := range replies {
		r.out.Up, r.out.Down = r.out.Up+reply.Up, r.out.Down+reply.Down
		b, err := unpack(reply.Upload.Extra, name)
		if err == nil {
			err = take(reply.Client, b)
		}
		if err != nil {
			r.refused++
			continue
		}
		took = append(took, reply.Client)
	}
	return took, nil
}

// finish makes the one reply of the sums.
func (r *round) finish() error {
	sum, survivors, err := r.server.Sum()
	if err != nil {
		return err
	}
	signed := make([]int64, len(sum))
	for i, v := range sum {
		signed[i] = r.terms.Ring.Signed(v)
	}
	var clipped float64
	if r.out.Upload, r.out.Stats.Loss, clipped, err = r.l.mean(r.order.Shared, signed, len(survivors)); err != nil {
		return err
	}
	r.out.Sum = survivors
	r.out.Notes = map[string]float64{"secagg_clipped": clipped, "secagg_refused": float64(r.refused)}
	if clipped > muchCut {
		r.out.Warnings = append(r.out.Warnings, fmt.Sprintf("secure aggregation cut %.3g %% of the numbers that "+
			"clients uploaded, and the mean is not theirs; "+
			"raise secure_aggregation.clip (%v) or beside (%v)", 100*clipped, r.l.c.Clip, r.l.c.Beside))
	}
	return nil
}

// muchCut is the share of cut numbers above which a round has a warning.
const muchCut = 1e-4
