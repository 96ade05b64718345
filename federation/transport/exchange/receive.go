package exchange

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport/protocol"
)

// receiveReply handles one reply: it counts, or is dropped and logged, or the server waits for its tensors.
func (d *Session) receiveReply(m *nats.Msg) {
	d.decoding <- struct{}{}
	defer func() { <-d.decoding }()
	var r protocol.Reply
	body, err := d.open(protocol.ReplyMessage, m, &r)
	if errors.Is(err, errUnknown) {
		d.askToRejoin()
		return
	}
	receive := func(state string, have []byte) {
		d.RespondSigned(m, d.Inbox, protocol.ReceiptMessage, protocol.Receipt{ID: r.ID, Try: r.Try, State: state,
			Have: have})
	}
	if err != nil {
		receive(protocol.ReceiptRepeat, nil)
		d.dropMessage(protocol.ReplyMessage, err)
		return
	}
	x, newest := d.pendingFor(r)
	if r.Run != d.RunID || x != nil && r.Client != x.Client {
		receive(protocol.ReceiptTaken, nil)
		d.dropMessage(protocol.ReplyMessage, fmt.Errorf("it belongs to client %d of run %.12s", r.Client, r.Run))
		return
	}
	if x == nil {
		d.Counters.Late.Add(1)
		d.Log.Debug("a late or repeated reply is dropped")
		receive(protocol.ReceiptTaken, nil)
		return
	}
	if r.Error != "" {
		if !newest { // a replay, or the member does not know of the newest attempt yet
			d.Counters.Late.Add(1)
			d.Log.Debug("the failure of an earlier attempt is dropped")
			receive(protocol.ReceiptRepeat, nil)
			return
		}
		receive(protocol.ReceiptTaken, nil)
		x.Fail(protocol.Printable(r.Error), nil)
		return
	}
	size := len(m.Data)
	// a signed and expected message that is no reply is the client's failure; the server does not wait for another
	if err = r.Check(); err == nil && int64(r.Size) > x.Most { // before any piece is stored
		err = fmt.Errorf("%d bytes of tensors; at most %d are accepted", r.Size, x.Most)
	}
	if err == nil && r.Object != "" {
		var have []byte
		if body, have, err = d.gather(x, r); have != nil {
			receive(protocol.ReceiptPending, have)
			return
		}
		size += len(body)
	}
	var keep func()
	if err == nil {
		keep, err = x.Read(r, body, size)
	}
	if errors.Is(err, protocol.ErrDamaged) && d.damaged(x, err) {
		receive(protocol.ReceiptRepeat, nil)
		return
	}
	receive(protocol.ReceiptTaken, nil) // before the reply counts: the server may end with it
	if err != nil {
		x.Fail("its reply is refused: "+protocol.Printable(err.Error()), err)
		return
	}
	keep()
}

// pendingFor returns the pending instruction that a reply answers, and whether the reply is to its newest attempt.
func (d *Session) pendingFor(r protocol.Reply) (x *Pending, newest bool) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if x = d.Pending; x != nil && x.ID == r.ID {
		return x, x.Try == r.Try
	}
	return nil, false
}

// gather returns the tensors of a reply that come in pieces, or which pieces have arrived if some are missing.
func (d *Session) gather(x *Pending, r protocol.Reply) (body, have []byte, err error) {
	a, err := d.arrival(x, r)
	if err != nil {
		return nil, nil, err
	}
	if a.left > 0 {
		return nil, a.have, nil
	}
	defer a.close()
	body, err = a.body()
	return body, nil, err
}

// arrival returns the incoming tensors of a reply. When they are complete, the exchange no longer owns them.
func (d *Session) arrival(x *Pending, r protocol.Reply) (a *incoming, err error) {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if d.Pending != x {
		return nil, ErrGone
	}
	if a = x.upload; a == nil || a.id != r.ID || a.sum != r.Sum || a.size != r.Size {
		a.close()
		x.upload = nil
		if a, err = newIncoming(d.Outbox.Dir, r.ID, r.Content); err != nil {
			return nil, fmt.Errorf("the server cannot store it: %w", err)
		}
		x.upload = a
	}
	if a.left == 0 {
		x.upload = nil
	}
	return a, nil
}

// maxDamaged is how often the tensors of a reply may differ from their signed digest.
const maxDamaged = 10

// damaged records that the tensors of a reply differ from their signed digest, and reports whether it may be sent
// again.
func (d *Session) damaged(x *Pending, err error) bool {
	d.dropMessage(protocol.ReplyMessage, err)
	d.Mu.Lock()
	defer d.Mu.Unlock()
	x.damaged++
	return d.Pending == x && x.damaged < maxDamaged
}
