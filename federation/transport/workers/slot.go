package workers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// slot is the dispatcher's state of one concurrent job of a worker.
type slot struct {
	exchange.Session
	of        *Dispatcher
	member    exchange.MemberState
	worker    string
	queue     chan *nats.Msg // unread messages
	gone      chan struct{}  // closed when the worker left or is lost
	working   bool           // has joined, and takes jobs
	publicKey []byte         // the public key that it joined with
}

func (d *Dispatcher) newSlot(at subjects.Address, worker string, n int) *slot {
	s := &slot{of: d, worker: worker, queue: make(chan *nats.Msg, exchange.MaxQueued), gone: make(chan struct{})}
	s.Session = d.NewSession(at, &s.member, n, certs.WorkerUser, s, d.Log.With("worker", worker[:8], "slot", n))
	return s
}

// listen handles messages in order.
func (s *slot) listen() {
	for {
		select {
		case m := <-s.queue:
			s.Handle(m)
		case <-s.gone:
			return
		}
	}
}

// Hello returns the invitation of a worker.
func (s *slot) Hello(_ *exchange.Session, q protocol.HelloRequest) protocol.HelloReply {
	if mine := (spec.Compatibility{Program: s.of.set.Compatibility.Program}); q.Program != mine.Program {
		reason := protocol.Printable(mine.Mismatch(spec.Compatibility{Program: q.Program}).Error())
		s.Log.Warn("a worker is refused", "reason", reason)
		return protocol.HelloReply{Refused: reason}
	}
	return protocol.HelloReply{Config: s.of.set.Config}
}

// Join admits a worker, or answers why not.
func (s *slot) Join(d *exchange.Session, m *nats.Msg) {
	var w Info
	key, err := s.ReadJoin(m.Data, &w, s.publicKey)
	if err == nil {
		err = s.admit(w)
	}
	v := protocol.JoinReply{Question: protocol.Question(m.Subject, m.Data)}
	if err != nil {
		v.Reason = protocol.Printable(err.Error())
		s.of.Counters.RefusedJoins.Add(1)
		if s.Number == 0 { // the other slots would log the same
			s.Log.Warn("a worker is refused", "host", protocol.Printable(w.Host), "reason", v.Reason)
		}
		s.RespondSigned(m, s.Inbox, protocol.JoinReplyMessage, v)
		return
	}
	s.Mu.Lock()
	s.SetJoined(w.Instance, key)
	s.publicKey = w.Proof.Key
	v.OK, v.Seq = true, s.Host.Seq
	s.of.workers[w.Instance] = true
	n := w.Compatibility.Numerics
	if n != s.of.set.Compatibility.Numerics && !slices.Contains(s.of.totals.Numerics, n) {
		s.of.totals.Numerics = append(s.of.totals.Numerics, n)
	}
	works, x := s.working, s.Pending
	s.working = true
	s.Mu.Unlock()
	s.RespondSigned(m, s.Inbox, protocol.JoinReplyMessage, v)
	if x != nil { // its current job is lost
		if err := s.Deliver(x); err != nil {
			s.Log.Debug("a job could not be sent again", "error", err)
		}
	}
	if works {
		return
	}
	go s.work()
	if s.Number > 0 {
		return
	}
	if d := s.of.set.Compatibility.Numerics.Differences(w.Compatibility.Numerics); len(d) > 0 {
		s.Log.Warn("the worker computes otherwise in the last digits, so the run's bytes are not promised; the run's "+
			"value is named first", "host", w.Host, "differences", protocol.Printable(strings.Join(d, "; ")))
	}
	s.Log.Info("a worker joined", "host", w.Host, "jobs", w.Jobs)
}

// admit checks a worker's request.
func (s *slot) admit(w Info) error {
	if !subjects.ID.MatchString(w.Instance) || w.Worker != s.worker || !protocol.Label.MatchString(w.Host) ||
		w.Jobs < 1 || w.Jobs > subjects.MaxJobs {
		return fmt.Errorf("the request to join is invalid: %d jobs at a time, host %.100q, worker %.40q, instance "+
			"%.40q", w.Jobs, w.Host, w.Worker, w.Instance)
	}
	return s.of.set.Compatibility.Mismatch(w.Compatibility)
}

// PresenceChanged reports that the worker leaves.
func (s *slot) PresenceChanged(_ *exchange.Session, back bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if !back {
		s.release("a worker left")
	}
}

// release removes the slot, once. Host.Mu must be held.
func (s *slot) release(why string) {
	if s.of.slots[s.From] != s {
		return
	}
	if s.working && s.Number == 0 {
		s.Log.Warn(why)
	}
	delete(s.of.slots, s.From)
	close(s.gone)
}

// sendEnd reports the end of the run to the worker. Host.Mu must be held.
func (s *slot) sendEnd() {
	o := protocol.Instruction{Run: s.RunID, Kind: protocol.EndKind, Total: 1, To: s.To, Try: subjects.NewID(),
		Seq: s.NextSeq()}
	o.SetBody(nil)
	o.ID = o.Identity()
	message, err := s.Sign(protocol.InstructionMessage, o, nil)
	if err == nil {
		err = s.Conn.Publish(s.Instructions(), message)
	}
	if err != nil {
		s.Log.Debug("a worker could not be notified that the run is over", "error", err)
	}
}

// work does jobs, one after the other.
func (s *slot) work() {
	for {
		select {
		case a := <-s.of.jobs:
			a.done <- s.run(a)
		case <-s.gone:
			return
		}
	}
}

// run does one job on the worker.
func (s *slot) run(a *job) outcome {
	what, err := s.encode(a)
	if err != nil {
		return outcome{err: err, fatal: true}
	}
	defer s.Outbox.Release(what.Sum)
	ended := make(chan outcome, 2)
	x := &exchange.Pending{Instruction: protocol.InstructionFor(s.RunID, a.order, a.client)}
	x.Content, x.To, x.Most = what, s.To, int64(s.Largest)
	x.ID = x.Identity()
	x.Read = func(r protocol.Reply, body []byte, size int) (func(), error) {
		reply, next, err := decodeResult(r, a.order, body)
		return func() { s.complete(x, ended, outcome{reply: reply, next: next}, size) }, err
	}
	x.Fail = func(why string, _ error) {
		s.complete(x, ended, outcome{err: fmt.Errorf("round %d, client %d: %s", a.order.Round+1, a.client, why)}, 0)
	}
	if err := s.Deliver(x); err != nil && !exchange.IsUnavailable(err) {
		return outcome{err: err, fatal: true}
	}
	var out outcome
	select {
	case out = <-ended:
	case <-s.gone:
		out.lost = true
	case <-a.ctx.Done():
		out.err, out.fatal = a.ctx.Err(), true
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	select {
	case out = <-ended: // the result arrived in the meantime
	default:
	}
	s.End(x)
	if out.lost {
		s.of.totals.Lost++
	}
	return out
}

// encode puts the tensors of a job into the outbox. Only then is the client's state in memory.
func (s *slot) encode(a *job) (out protocol.Content, err error) {
	s.Decode(func() {
		var state message.ClientState
		if state, err = a.state(); err != nil {
			return
		}
		var body []byte
		if body, err = encodeJob(a.order, state); err == nil {
			out, err = s.Stage(body)
		}
		if err != nil {
			err = fmt.Errorf("round %d, client %d: the job: %w", a.order.Round+1, a.client, err)
		}
	})
	return out, err
}

// complete ends a job, unless it has ended.
func (s *slot) complete(x *exchange.Pending, ended chan<- outcome, out outcome, size int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Pending != x {
		return
	}
	s.End(x)
	t := &s.of.totals
	if out.err != nil {
		t.Failed++
	} else {
		t.Jobs++
		s.Counters.Up.Add(int64(size))
	}
	ended <- out
}
