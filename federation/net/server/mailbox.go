package server

import (
	"cmp"
	"context"
	"sync"
	"time"

	"promptfed/federation/net/wire"
	"promptfed/runtime/tensor"
)

// pending is an instruction that a client must answer. It never changes.
type pending struct {
	*wire.Instruction              // without its tensors
	body              []byte       // tensors of the instruction
	most              int64        // largest size of the reply's tensors, in bytes
	forms             tensor.Specs // of these tensors
	collection        *collection
	since             time.Time       // when the client could get it
	over              context.Context // ends when no answer is expected any more, also not to another attempt
	end               context.CancelFunc
}

// mailboxes hold what each client is told. The lock is held to set and to read pointers.
type mailboxes struct {
	mu    sync.Mutex
	seq   int64 // number of the newest instruction of the run
	boxes []mailbox
}

// mailbox is that of one client.
type mailbox struct {
	pending *pending      // nil for none
	changed chan struct{} // closed when there is a newer one

	// identities of instructions whose upload counts; empty for none
	accepted string // the last one
	safe     string // the last one in a checkpoint
	trained  string // the one to train that the client answered in the current round
}

func newMailboxes(clients int) *mailboxes {
	m := &mailboxes{boxes: make([]mailbox, clients)}
	for k := range m.boxes {
		m.boxes[k].changed = make(chan struct{})
	}
	return m
}

// deliver makes an instruction the pending one of a client. If the client has the same one, this is another attempt,
// and a reply that is on its way still counts.
func (m *mailboxes) deliver(client int, request *pending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	box := &m.boxes[client]
	if old := box.pending; old != nil && old.Id == request.Id {
		request.over, request.end = old.over, old.end
	} else {
		box.clear()
		request.over, request.end = context.WithCancel(context.Background())
	}

	m.seq = max(m.seq+1, time.Now().UnixNano())
	request.Accepted, request.Safe = box.accepted, box.safe
	request.Attempt, request.Seq, request.since, box.pending = wire.NewID(), m.seq, time.Now(), request
	close(box.changed)
	box.changed = make(chan struct{})
}

func (b *mailbox) clear() {
	if b.pending != nil {
		b.pending.end()
		b.pending = nil
	}
}

// finish ends a client's instruction of a collection.
func (m *mailboxes) finish(client int, open *collection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if box := &m.boxes[client]; box.pending != nil && box.pending.collection == open {
		box.clear()
	}
}

// clear ends all instructions.
func (m *mailboxes) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.boxes {
		m.boxes[k].clear()
	}
}

// box returns the state of a client's mailbox.
func (m *mailboxes) box(client int) mailbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boxes[client]
}

// newer waits for an instruction to a client after one with a number.
func (m *mailboxes) newer(ctx context.Context, client int, seq int64) (*pending, error) {
	for {
		b := m.box(client)
		if b.pending != nil && b.pending.Seq > seq {
			return b.pending, nil
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// trained records that a client answered an instruction to train, or with an empty one that its upload is refused.
func (m *mailboxes) trained(client int, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boxes[client].trained = id
}

// accept makes the uploads of clients in this round count.
func (m *mailboxes) accept(clients []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range clients {
		m.boxes[k].accepted = cmp.Or(m.boxes[k].trained, m.boxes[k].accepted)
	}

	for k := range m.boxes {
		m.boxes[k].trained = ""
	}
}

// save makes the accepted uploads those of the checkpoint, and returns them by client, with the number of the newest
// instruction.
func (m *mailboxes) save() (accepted map[int]string, seq int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	accepted = map[int]string{}
	for k := range m.boxes {
		b := &m.boxes[k]
		if b.safe = b.accepted; b.safe != "" {
			accepted[k] = b.safe
		}
	}

	return accepted, m.seq
}

// restore sets the uploads and the number of the newest instruction of a checkpoint.
func (m *mailboxes) restore(accepted map[int]string, seq int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq = seq
	for k := range m.boxes {
		m.boxes[k].accepted, m.boxes[k].safe = accepted[k], accepted[k]
	}
}
