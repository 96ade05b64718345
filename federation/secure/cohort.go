package secure

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/secagg"
	"promptfed/runtime/tensor"
)

// cohort turns an order to train into the five steps of a session.
type cohort struct {
	message.Cohort
	l     *Layer
	p     Party
	saved progress
}

// progress is what outlasts a restart of the server.
type progress struct {
	Run     string           `json:"run"`
	Session *secagg.Progress `json:"session,omitempty"` // of the newest round
	Peers   secagg.Peers     `json:"peers"`
}

// Wrap puts the server's side between the server and a cohort of the same process.
func (l *Layer) Wrap(c message.Cohort) message.Cohort {
	return &cohort{Cohort: c, l: l, p: inProcess(), saved: progress{Peers: secagg.Peers{}}}
}

// WrapAt is Wrap for clients on other machines. A round that was under way when the server ended goes on in the same
// session, since its clients take no other: with those of the steps that are over, and with the sum if it was made.
func (l *Layer) WrapAt(p Party) (func(message.Cohort) message.Cohort, error) {
	old := progress{}
	if _, err := p.read(RecordFile, &old); err != nil {
		return nil, err
	}
	if old.Run != p.Run || old.Peers == nil {
		old = progress{Run: p.Run, Peers: secagg.Peers{}}
	}
	return func(c message.Cohort) message.Cohort { return &cohort{Cohort: c, l: l, p: p, saved: old} }, nil
}

// round is one session under way.
type round struct {
	*cohort
	order   message.Instruction
	server  *secagg.Server
	terms   secagg.Params
	model   [sha256.Size]byte
	out     message.Reply
	refused int // messages that were none
}

// Run gives one reply for all clients to an order to train, and passes others on.
func (c *cohort) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind != message.Train {
		return c.Cohort.Run(ctx, o)
	}
	r := &round{cohort: c, order: o, out: message.Reply{Client: method.Summed}}
	err := r.open()
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("round %d: %w", o.Round+1, err)
	}
	return []message.Reply{r.out}, nil
}

// open begins the round's session, or goes on with it.
func (r *round) open() (err error) {
	if r.model, err = modelDigest(r.order); err != nil {
		return err
	}
	r.terms = secagg.Params{Round: r.order.Round, Clients: r.l.clients, Threshold: r.l.threshold(),
		Length: r.l.length(r.order.Shared), Context: r.p.context()}
	if r.terms.Ring, err = r.l.ring(); err != nil {
		return err
	}
	if old := r.saved.Session; old != nil && old.Terms.Round == r.order.Round {
		r.terms.Session = old.Terms.Session
		if old.Terms != r.terms {
			return errors.New("secure aggregation: the round began with other settings, which its clients do not " +
				"change")
		}
		r.server, err = secagg.Resume(*old, r.model, r.p.Who, r.saved.Peers)
		return err
	}
	if _, err := rand.Read(r.terms.Session[:]); err != nil {
		return err
	}
	if r.server, err = secagg.NewServer(r.terms, r.p.Who, r.saved.Peers); err != nil {
		return err
	}
	return r.save()
}

// save writes down which steps are over; clients must not be asked anything else of this round any more.
func (r *round) save() error {
	if r.p.Dir == "" {
		return nil
	}
	p := r.server.Progress()
	r.saved.Session = &p
	return r.p.write(RecordFile, r.saved)
}

func (r *round) run(ctx context.Context) error {
	if r.server.Joined() == nil {
		if _, err := r.ask(ctx, keysStep, r.order.Clients, pack(sessionName, encodeParams(r.terms)), keysName,
			decoded(secagg.DecodeJoining, r.server.Join)); err != nil {
			return err
		}
	}
	roster, err := r.server.Roster()
	if err == nil {
		err = r.save()
	}
	if err != nil {
		return err
	}
	if r.server.Dealt() == nil {
		if _, err = r.ask(ctx, sharesStep, r.server.Joined(), pack(rosterName, roster.Encode()), sharesName,
			decoded(secagg.DecodeEnvelopes, r.server.Deal)); err != nil {
			return err
		}
	}
	inboxes, err := r.server.Inboxes(r.model)
	if err == nil {
		err = r.save()
	}
	if err == nil {
		err = r.train(ctx, inboxes)
	}
	if err != nil {
		return err
	}
	q, err := r.server.Unmask()
	if err == nil {
		err = r.save()
	}
	if err != nil {
		return err
	}
	took, err := r.ask(ctx, agreeStep, q.Survivors, pack(questionName, q.Encode()), agreedName, r.server.Agree)
	if err != nil {
		return err
	}
	signed, err := r.server.Signatures()
	if err != nil {
		return err
	}
	if _, err = r.ask(ctx, revealStep, took, pack(signedName, signed.Encode()), revealName,
		decoded(secagg.DecodeShares, r.server.Reveal)); err != nil {
		return err
	}
	return r.finish()
}

// decoded takes what a client's message says.
func decoded[T any](decode func([]byte) (T, error), take func(int, T) error) func(int, []byte) error {
	return func(id int, b []byte) error {
		v, err := decode(b)
		if err != nil {
			return err
		}
		return take(id, v)
	}
}

// ask runs one step beside training with clients and gives those whose messages were taken.
func (r *round) ask(ctx context.Context, step string, clients []int, down tensor.Map, name string, take func(int,
	[]byte) error) ([]int, error) {
	o := message.Instruction{Kind: message.Compute, Round: r.order.Round, Statistic: step, Clients: clients,
		Total: r.order.Total, Shared: tensor.Map{}, Broadcast: down}
	return r.send(ctx, o, name, take)
}

// train sends the order to train with what each client got from the others. Where the sum was made before, the clients
// in it send their vectors once more, so that what they learned counts, and the sum stays.
func (r *round) train(ctx context.Context, inboxes map[int]secagg.Envelopes) error {
	o, made := r.order, r.server.Added()
	o.Clients, o.Protected, o.PerClient = r.server.Dealt(), true, map[int]tensor.Map{}
	if made != nil {
		o.Clients = made
	}
	for _, id := range o.Clients {
		o.PerClient[id] = pack(inboxName, inboxes[id].Encode())
		maps.Copy(o.PerClient[id], r.order.PerClient[id])
	}
	_, err := r.send(ctx, o, maskedName, func(id int, b []byte) error {
		y, err := r.terms.Ring.Decode(b)
		if err != nil || made != nil {
			return err
		}
		return r.server.Add(id, y)
	})
	return err
}

// send runs an order. What a client sends that is no message counts as if it had sent nothing.
func (r *round) send(ctx context.Context, o message.Instruction, name string, take func(int, []byte) error) (took []int,
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
	if clipped > warnClipped {
		r.out.Warnings = append(r.out.Warnings, fmt.Sprintf("secure aggregation clipped %.3g %% of the numbers that "+
			"clients uploaded, which changes the mean; raise secure_aggregation.clip (%v) or extra_clip (%v)",
			100*clipped, r.l.c.Clip, r.l.c.ExtraClip))
	}
	return nil
}

// warnClipped is the share of cut numbers above which a round has a warning.
const warnClipped = 1e-4
