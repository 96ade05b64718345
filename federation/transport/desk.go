package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/nats-io/nats.go"
)

// desk is where the messages of one member are looked at, one after the other. It has a queue of its own: what a member
// sends too much is dropped there, and the others do not notice.
type desk struct {
	*host
	*peer
	subjects
	number  int    // of the client, or of the job that a worker's part of this address is for
	user    string // whose certificate it must be
	run     runner
	log     *slog.Logger // names the member
	sub     *nats.Subscription
	pace    *rate.Limiter // of all messages; more wait
	talk    *rate.Limiter // of those that cost the server more than they cost the client
	flooded atomic.Int64  // messages dropped since watch looked
	dropped int           // by sub, when watch looked
}

// runner is the run behind a desk.
type runner interface {
	// greet is what a member is told before it joins.
	greet(d *desk, q question) hello
	// join lets a member take part, or says why not.
	join(d *desk, m *nats.Msg)
	// moved hears that a member leaves, or that it is back.
	moved(d *desk, back bool)
}

func (h *host) desk(at subjects, p *peer, number int, user string, run runner, log *slog.Logger) desk {
	return desk{host: h, peer: p, subjects: at, number: number, user: user, run: run, log: log,
		pace: rate.NewLimiter(maxRate, maxRate), talk: rate.NewLimiter(talkRate, talkBurst)}
}

// What a client may send. An honest one has few messages on their way, so that its queue never fills.
const (
	maxQueued = 64   // messages that nobody looked at yet; more are dropped
	maxRate   = 4000 // messages a second; more wait
	talkRate  = 2    // requests to join and the like a second; more are dropped
	talkBurst = 20
)

// subscribe hears the member.
func (d *desk) subscribe() (err error) {
	if d.sub, err = d.on(d.verb("*"), d.handle); err != nil {
		return err
	}
	return d.sub.SetPendingLimits(maxQueued, 2*ahead*piece+4*(d.limit+maxFrame))
}

// floods tells whether the member sent more than it may since the last time.
func (d *desk) floods() bool {
	n := d.flooded.Swap(0)
	if n > 0 {
		d.count.dropped.Add(n)
		d.log.Warn("a member sends more than it may", "dropped", n)
	}
	return n > 0
}

// asked is what a question asks; without a nonce to repeat it is none.
func asked(m *nats.Msg) (q question, ok bool) {
	if strict(m.Data, &q) != nil || !hash.MatchString(q.Nonce) {
		return question{}, false
	}
	return q, true
}

// handle looks at one message.
func (d *desk) handle(m *nats.Msg) {
	d.pace.Wait(context.Background())
	switch verb := verbOf(m.Subject); verb {
	case helloVerb, joinVerb:
		if !d.talk.Allow() {
			d.flooded.Add(1)
			return
		}
		if verb == joinVerb {
			d.run.join(d, m)
			return
		}
		q, _ := asked(m)
		out := d.run.greet(d, q)
		out.Version, out.Run, out.Nonce, out.Proof = Version, d.id, q.Nonce, d.voice.Load().proof
		out.Limit, out.Largest = d.limit, d.largest
		d.say(m, d.inbox, helloMessage, out)
	case beatVerb:
		d.beat(m)
	case partVerb:
		d.part(m)
	case replyVerb:
		d.reply(m)
	case putVerb:
		d.put(m)
	}
}

// open reads a message that the member signed.
func (d *desk) open(what string, m *nats.Msg, header any) ([]byte, error) {
	d.mu.Lock()
	key := d.key
	d.mu.Unlock()
	if key.key == nil {
		return nil, errUnknown
	}
	return unpack(key, what, m.Data, header)
}

var errUnknown = errors.New("the sender has not joined")

// strange counts a message that is not what it should be and drops it.
func (d *desk) strange(what string, err error) {
	d.count.dropped.Add(1)
	d.mu.Lock()
	d.refused++
	n := d.refused
	d.mu.Unlock()
	log := d.log.Debug
	if n <= 10 || n%1000 == 0 { // who sends nonsense does not fill the log
		log = d.log.Warn
	}
	log("a message is dropped", "kind", what, "reason", plain(err.Error()))
}

// recall asks the member to join again.
func (d *desk) recall() { d.nc.Publish(d.again(), nil) }

// beat hears that the member is there. One that is not known is asked to join again, and one that has not got its order
// gets it.
func (d *desk) beat(m *nats.Msg) {
	var b beat
	_, err := d.open(beatMessage, m, &b)
	if errors.Is(err, errUnknown) {
		d.recall()
		return
	}
	if err == nil && (b.Run != d.id || b.Client != d.number) {
		err = fmt.Errorf("it is of client %d of run %.12s", b.Client, b.Run)
	}
	if err != nil {
		if d.talk.Allow() {
			d.recall()
		}
		d.strange(beatMessage, err)
		return
	}
	d.mu.Lock()
	if d.instance != b.Instance {
		silent := d.left || time.Since(d.seen) >= missed
		d.mu.Unlock()
		if silent && !b.Leaves {
			d.recall()
		}
		return
	}
	if b.Count <= d.beats {
		d.mu.Unlock()
		d.count.dropped.Add(1)
		return
	}
	back := d.left && !b.Leaves
	d.beats, d.seen, d.doing, d.left, d.try = b.Count, time.Now(), plain(b.Doing), b.Leaves, b.Try
	d.mu.Unlock()
	if b.Leaves {
		d.log.Info("leaves")
	} else {
		d.remind()
	}
	if b.Leaves || back {
		d.run.moved(d, back)
	}
}

// Answers to a request for a piece, or to a piece: the first byte.
const (
	pieceHere  = 'p' // the piece follows, after its CRC-32
	pieceTaken = 't'
	pieceBent  = 'b' // it came damaged
	pieceGone  = 'g' // nobody waits for it, or it is not to be had any more
)

// part gives a piece of the tensors of the member's own order.
func (d *desk) part(m *nats.Msg) {
	var a ask
	if err := strict(m.Data, &a); err != nil || !sumText.MatchString(a.Sum) || a.Piece < 0 {
		d.strange(partVerb, errors.New("it asks for no piece"))
		return
	}
	d.mu.Lock()
	mine := d.now != nil && d.now.Sum == a.Sum
	d.mu.Unlock()
	out := []byte{pieceGone}
	if size, err := d.spool.size(a.Sum); mine && err == nil && a.Piece < pieces(size) {
		from, to := bounds(size, a.Piece)
		b, err := d.spool.read(a.Sum, from, to)
		if err == nil {
			out = append(binary.LittleEndian.AppendUint32([]byte{pieceHere}, crc(b)), b...)
			d.mu.Lock()
			d.down += int64(len(out))
			d.mu.Unlock()
			d.count.down.Add(int64(len(out)))
		} else if !errors.Is(err, errGone) {
			d.log.Error("cannot read the tensors of an order", "error", err)
		}
	}
	d.answer(m, d.inbox, out)
}

// putHead is what stands before a piece of a reply: the identity of the order, the piece's number and its CRC-32.
const putHead = 32 + 4 + 4

// put takes a piece of the tensors of a reply that the member announced.
func (d *desk) put(m *nats.Msg) {
	if len(m.Data) < putHead || len(m.Data) > putHead+piece {
		d.strange(putVerb, fmt.Errorf("a piece of %d bytes", len(m.Data)))
		return
	}
	state := byte(pieceGone)
	id, n, check, b := string(m.Data[:32]), binary.LittleEndian.Uint32(m.Data[32:]),
		binary.LittleEndian.Uint32(m.Data[36:]), m.Data[putHead:]
	if a := d.arriving(id); a != nil {
		state = pieceBent
		if crc(b) == check {
			ok, err := a.take(int(n), b)
			if errors.Is(err, os.ErrClosed) {
				state = pieceGone
			} else if err != nil {
				d.log.Error("cannot keep a piece of a reply", "error", err)
			} else if ok {
				state = pieceTaken
			}
		}
	}
	d.answer(m, d.inbox, []byte{state})
}

// introduced reads what a member says of itself, and the key that it is signed with; before is the one that it had
// before.
func (d *desk) introduced(b []byte, card joining, before []byte) (verifier, error) {
	f, err := split(joinMessage, b)
	if err == nil {
		err = strict(f.header, card)
	}
	i := card.self()
	if err == nil && (i.Client != d.number || !hash.MatchString(i.Nonce)) {
		err = fmt.Errorf("the card is of client %d", i.Client)
	}
	if err == nil && i.Run != d.id {
		err = errors.New("the server began another run; start the client again")
	}
	if err != nil {
		return verifier{}, err
	}
	key, err := d.who.known(i.Proof, d.user, before)
	if err == nil && !key.verify(digest(joinMessage, f.header), f.signature) {
		err = errForged
	}
	return key, err
}
