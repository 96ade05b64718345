package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/spec"
)

// maxSlots is the largest number of slots of all workers together.
const maxSlots = 1 << 14

// Info is a worker's request to take part. The worker repeats it as a heartbeat.
type Info struct {
	Run           string             `json:"run"`    // identity, from the invitation
	Worker        string             `json:"worker"` // identity
	Host          string             `json:"host"`
	Jobs          int                `json:"jobs"` // at a time
	Leaves        bool               `json:"leaves,omitempty"`
	Compatibility spec.Compatibility `json:"compatibility"`
}

// Invitation describes a run to workers.
type Invitation struct {
	Run    string `json:"run"` // identity
	Config []byte `json:"config"`
}

// question is a worker's request for the invitation.
type question struct {
	Program string `json:"program"` // its version
}

// answer is the run's reply to a worker.
type answer struct {
	Invitation
	Refused string `json:"refused,omitempty"`
}

// member is a worker that is present.
type member struct {
	Info
	seen time.Time
}

func (d *Dispatcher) answer(m *nats.Msg, a answer) {
	b, err := json.Marshal(a)
	if err == nil {
		err = m.Respond(b)
	}
	if err != nil {
		d.set.Log.Debug("a worker gets no answer", "error", err)
	}
}

// invite answers a request for the run's configuration.
func (d *Dispatcher) invite(msg *nats.Msg) {
	var q question
	if len(msg.Data) > 0 && json.Unmarshal(msg.Data, &q) != nil {
		return
	}

	mine := spec.Compatibility{Program: d.set.Compatibility.Program}
	if err := mine.Mismatch(spec.Compatibility{Program: q.Program}); err != nil && len(msg.Data) > 0 {
		d.set.Log.Warn("a worker is refused", "reason", err)
		d.answer(msg, answer{Refused: err.Error()})
		return
	}

	d.answer(msg, answer{Invitation: Invitation{d.run, d.set.Config}})
}

// join admits a worker, or answers why not.
func (d *Dispatcher) join(msg *nats.Msg) {
	var w Info
	if json.Unmarshal(msg.Data, &w) != nil {
		return
	}

	a := answer{Invitation: Invitation{Run: d.run}}
	if w.Run == d.run {
		if err := d.admitWorker(w); err != nil {
			d.set.Log.Warn("a worker is refused", "host", w.Host, "reason", err)
			a.Refused = err.Error()
		}
	}

	d.answer(msg, a)
}

// admitWorker admits a worker, or notes that it is still present or leaves.
func (d *Dispatcher) admitWorker(info Info) error {
	mine := d.set.Compatibility
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.free.Broadcast()
	switch m := d.members[info.Worker]; {
	case info.Leaves:
		d.removeMember(info.Worker, "a worker left")
		return nil
	case m != nil:
		m.seen = time.Now()
		return nil
	}

	if info.Jobs < 1 || info.Jobs > MaxJobs || d.capacity()+info.Jobs > maxSlots {
		return fmt.Errorf("the request to join is invalid: %d jobs at a time; a worker has 1 to %d, and all workers "+
			"together at most %d", info.Jobs, MaxJobs, maxSlots)
	}

	if err := mine.Mismatch(info.Compatibility); err != nil {
		return err
	}

	d.members[info.Worker], d.known[info.Worker] = &member{info, time.Now()}, true
	n := info.Compatibility.Numerics
	if n != mine.Numerics && !slices.Contains(d.totals.Numerics, n) {
		d.totals.Numerics = append(d.totals.Numerics, n)
	}

	if list := mine.Numerics.Differences(n); len(list) > 0 {
		d.set.Log.Warn("the worker computes otherwise in the last digits, so the run's bytes are not promised; the "+
			"run's value is named first", "host", info.Host, "differences", strings.Join(list, "; "))
	}

	d.set.Log.Info("a worker joined", "host", info.Host, "jobs", info.Jobs)
	return nil
}

// removeMember removes a worker. mu must be held.
func (d *Dispatcher) removeMember(worker, why string) {
	if m := d.members[worker]; m != nil {
		d.set.Log.Warn(why, "host", m.Host)
		delete(d.members, worker)
	}
}

// removeSilent removes silent workers, except while there is no NATS server.
func (d *Dispatcher) removeSilent() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for worker, m := range d.members {
		if !d.conn.IsConnected() {
			m.seen = time.Now()
		} else if time.Since(m.seen) >= presenceTimeout {
			d.removeMember(worker, "a worker does not answer any more")
		}
	}
}

// request sends a request to the run that owns a queue.
func request(ctx context.Context, nc *nats.Conn, subject string, v any, limit time.Duration) (reply answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var b []byte
	if v != nil {
		if b, err = json.Marshal(v); err != nil {
			return reply, err
		}
	}

	m, err := nc.RequestWithContext(ctx, subject, b)
	if err != nil {
		return reply, err
	}

	err = json.Unmarshal(m.Data, &reply)
	return reply, err
}
