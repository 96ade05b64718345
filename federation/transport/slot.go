package transport

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/spec"
)

// slot is one of the jobs that a worker does at a time, as the dispatcher sees it.
type slot struct {
	desk
	of     *Dispatcher
	member peer
	worker string
	queue  chan *nats.Msg // messages that nobody looked at yet
	gone   chan struct{}  // closed when the worker left or is missed
	works  bool           // it joined, and takes jobs
	proved []byte         // the public key that it joined with
}

// newSlot makes a slot that has not joined.
func (d *Dispatcher) newSlot(at subjects, worker string, n int) *slot {
	s := &slot{of: d, worker: worker, queue: make(chan *nats.Msg, maxQueued), gone: make(chan struct{})}
	s.desk = d.desk(at, &s.member, n, WorkerUser, s, d.log.With("worker", worker[:8], "slot", n))
	return s
}

// listen looks at messages, one after the other.
func (s *slot) listen() {
	for {
		select {
		case m := <-s.queue:
			s.handle(m)
		case <-s.gone:
			return
		}
	}
}

// greet tells a worker about the run.
func (s *slot) greet(_ *desk, q question) hello {
	if mine := (spec.Compatibility{Program: s.of.set.Footing.Program}); q.Program != mine.Program {
		reason := plain(mine.Mismatch(spec.Compatibility{Program: q.Program}).Error())
		s.log.Warn("a worker is refused", "reason", reason)
		return hello{Refused: reason}
	}
	return hello{Config: s.of.set.Config}
}

// join lets a worker take part, or says why not.
func (s *slot) join(d *desk, m *nats.Msg) {
	var w WorkerInfo
	key, err := s.introduced(m.Data, &w, s.proved)
	if err == nil {
		err = s.admit(w)
	}
	v := verdict{Nonce: w.Nonce}
	if err != nil {
		v.Reason = plain(err.Error())
		s.of.count.refusedJoins.Add(1)
		if s.number == 0 { // the others have the same to say
			s.log.Warn("a worker is refused", "host", plain(w.Host), "reason", v.Reason)
		}
		s.say(m, s.inbox, verdictMessage, v)
		return
	}
	s.mu.Lock()
	s.joins(w.Instance, key)
	s.proved = w.Proof.Key
	v.OK, v.Seq = true, s.host.seq
	s.of.workers[w.Instance] = true
	works, x := s.works, s.now
	s.works = true
	s.mu.Unlock()
	s.say(m, s.inbox, verdictMessage, v)
	if x != nil { // what it was at is lost
		if err := s.begin(x); err != nil {
			s.log.Debug("an order could not be sent again", "error", err)
		}
	}
	if works {
		return
	}
	go s.work()
	if s.number > 0 {
		return
	}
	if here, there := s.of.set.Footing.Platform, w.Footing.Platform; here != there {
		s.log.Warn("the worker's machine is of another kind; its results may differ in their last digits", "host",
			w.Host, "platform", plain(there), "here", here)
	}
	s.log.Info("a worker takes part", "host", w.Host, "jobs", w.Jobs)
}

// admit checks what a worker says of itself.
func (s *slot) admit(w WorkerInfo) error {
	if !hash.MatchString(w.Instance) || w.Worker != s.worker || !word.MatchString(w.Host) || w.Jobs < 1 ||
		w.Jobs > MaxJobs {
		return fmt.Errorf("%d jobs at a time, host %.100q, worker %.40q or instance %.40q are none", w.Jobs, w.Host,
			w.Worker, w.Instance)
	}
	return s.of.set.Footing.Mismatch(w.Footing)
}

// moved hears that the worker leaves.
func (s *slot) moved(_ *desk, back bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !back {
		s.lose("a worker leaves")
	}
}

// lose gives up the slot, once. host.mu must be held.
func (s *slot) lose(why string) {
	if s.of.slots[s.from] != s {
		return
	}
	if s.works && s.number == 0 {
		s.log.Warn(why)
	}
	delete(s.of.slots, s.from)
	close(s.gone)
}

// over tells the worker that the run is over. host.mu must be held.
func (s *slot) over() {
	o := order{Run: s.id, Kind: endKind, Of: 1, To: s.to, Try: NewID(), Seq: s.next()}
	o.of(nil)
	o.ID = o.identity()
	message, err := pack(s.voice.Load().signer, orderMessage, o, nil)
	if err == nil {
		err = s.nc.Publish(s.orders(), message)
	}
	if err != nil {
		s.log.Debug("a worker could not be told that the run is over", "error", err)
	}
}

// work does one job after the other.
func (s *slot) work() {
	for {
		select {
		case a := <-s.of.jobs:
			a.done <- s.do(a)
		case <-s.gone:
			return
		}
	}
}

// do has the worker do a job.
func (s *slot) do(a *assignment) outcome {
	what, err := s.load(a)
	if err != nil {
		return outcome{err: err, fatal: true}
	}
	defer s.spool.drop(what.Sum)
	ended := make(chan outcome, 2)
	x := &exchange{order: headed(s.id, a.order, a.client)}
	x.content, x.To = what, s.to
	x.ID = x.identity()
	x.read = func(r reply, body []byte, size int) (func(), error) {
		reply, next, err := r.decodeResult(a.order, body)
		return func() { s.settle(x, ended, outcome{reply: reply, next: next}, size) }, err
	}
	x.fail = func(why string, _ error) {
		s.settle(x, ended, outcome{err: fmt.Errorf("round %d, client %d: %s", a.order.Round, a.client, why)}, 0)
	}
	if err := s.begin(x); err != nil && !natsAway(err) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case out = <-ended: // it came at the last moment
	default:
	}
	s.end(x)
	if out.lost {
		s.of.totals.Lost++
	}
	return out
}

// load puts the tensors of a job into the spool. What the client remembers is in memory no longer than that.
func (s *slot) load(a *assignment) (out content, err error) {
	s.heavy <- struct{}{}
	defer func() { <-s.heavy }()
	state, err := a.state()
	if err != nil {
		return out, err
	}
	body, err := encodeJob(a.order, state)
	if err != nil {
		return out, err
	}
	if out.of(body); len(body) > s.limit {
		out.away()
	}
	if len(body) > s.largest {
		return out, fmt.Errorf("round %d, client %d: the job has %d bytes; at most %d are possible", a.order.Round,
			a.client, len(body), s.largest)
	}
	return out, s.spool.put(out.Sum, body)
}

// settle ends a job, unless it has ended.
func (s *slot) settle(x *exchange, ended chan<- outcome, out outcome, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != x {
		return
	}
	s.end(x)
	t := &s.of.totals
	if out.err != nil {
		t.Failed++
	} else {
		t.Jobs++
		s.count.up.Add(int64(size))
	}
	ended <- out
}
