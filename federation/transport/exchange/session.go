package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Session handles the messages of one member in order. It has its own queue: messages beyond its size are dropped
// without an effect on other members.
type Session struct {
	Budget
	*MemberState
	subjects.Address
	Number  int    // number of the client, or of the worker's job
	user    string // common name of its certificate
	handler Handler
	Log     *slog.Logger // names the member
}

// Handler is the run of a session.
type Handler interface {
	// Hello returns the invitation of a member.
	Hello(d *Session, q protocol.HelloRequest) protocol.HelloReply
	// Join admits a member, or answers why not.
	Join(d *Session, m *nats.Msg)
	// PresenceChanged reports that a member leaves or is back.
	PresenceChanged(d *Session, back bool)
}

func (h *Host) NewSession(at subjects.Address, p *MemberState, number int, user string, run Handler,
	log *slog.Logger) Session {
	return Session{Budget: h.NewBudget(), MemberState: p, Address: at, Number: number, user: user,
		handler: run, Log: log}
}

// Subscribe subscribes to the member's messages.
func (d *Session) Subscribe() error { return d.SubscribeUser(d.Verb("*"), d.Handle) }

// asked is the content of a question, whose nonce the answer repeats; without a nonce it is refused.
func asked(m *nats.Msg) (q protocol.HelloRequest, ok bool) {
	if protocol.DecodeStrict(m.Data, &q) != nil || !subjects.ID.MatchString(q.Nonce) {
		return protocol.HelloRequest{}, false
	}
	return q, true
}

// Handle handles one message.
func (d *Session) Handle(m *nats.Msg) {
	if !d.Allow(costOf(m)) {
		return
	}
	switch subjects.VerbOf(m.Subject) {
	case subjects.JoinVerb:
		d.handler.Join(d, m)
	case subjects.HelloVerb:
		q, _ := asked(m)
		out := d.handler.Hello(d, q)
		out.Run, out.Limit = d.RunID, d.InlineLimit
		d.RespondHello(m, d.Inbox, out)
	case subjects.HeartbeatVerb:
		d.heartbeat(m)
	case subjects.PieceVerb:
		d.sendPiece(m)
	case subjects.ReplyVerb:
		d.receiveReply(m)
	case subjects.PutVerb:
		d.receivePiece(m)
	}
}

// open reads a message signed by the member.
func (d *Session) open(what string, m *nats.Msg, header any) ([]byte, error) {
	d.Mu.Lock()
	key := d.Key
	d.Mu.Unlock()
	if key.Key == nil {
		return nil, errUnknown
	}
	return protocol.Unpack(key, what, m.Data, header)
}

var errUnknown = errors.New("the sender has not joined")

// dropMessage counts and drops an invalid message.
func (d *Session) dropMessage(what string, err error) {
	d.Counters.Dropped.Add(1)
	d.Mu.Lock()
	d.Refused++
	n := d.Refused
	d.Mu.Unlock()
	log := d.Log.Debug
	if n <= 10 || n%1000 == 0 { // invalid messages must not fill the log
		log = d.Log.Warn
	}
	log("a message is dropped", "kind", what, "reason", protocol.Printable(err.Error()))
}

// askToRejoin asks the member to join again, at most once a second.
func (d *Session) askToRejoin() {
	d.Mu.Lock()
	early := time.Since(d.askedToRejoin) < time.Second
	if !early {
		d.askedToRejoin = time.Now()
	}
	d.Mu.Unlock()
	if !early {
		d.Conn.Publish(d.Rejoin(), nil)
	}
}

// heartbeat handles a heartbeat. An unknown member is asked to join again, and a member without its instruction gets
// it.
func (d *Session) heartbeat(m *nats.Msg) {
	var b protocol.Heartbeat
	_, err := d.open(protocol.HeartbeatMessage, m, &b)
	if errors.Is(err, errUnknown) {
		d.askToRejoin()
		return
	}
	if err == nil && (b.Run != d.RunID || b.Client != d.Number) {
		err = fmt.Errorf("it belongs to client %d of run %.12s", b.Client, b.Run)
	}
	if err != nil {
		d.askToRejoin()
		d.dropMessage(protocol.HeartbeatMessage, err)
		return
	}
	d.Mu.Lock()
	if d.Instance != b.Instance {
		silent := d.Left || time.Since(d.Seen) >= PresenceTimeout
		d.Mu.Unlock()
		if silent && !b.Leaves {
			d.askToRejoin()
		}
		return
	}
	if b.Count <= d.Beats {
		d.Mu.Unlock()
		d.Counters.Dropped.Add(1)
		return
	}
	changed := d.Left != b.Leaves
	if changed && !d.Allow(QuestionCost) {
		d.Mu.Unlock()
		return
	}
	d.Beats, d.Seen, d.Activity, d.Left, d.try = b.Count, time.Now(), protocol.Printable(b.Doing), b.Leaves, b.Try
	d.Mu.Unlock()
	if !b.Leaves {
		d.redeliver()
	} else if changed {
		d.Log.Info("leaves")
	}
	if changed {
		d.handler.PresenceChanged(d, !b.Leaves)
	}
}

// Answers to a request for a piece, or to a piece: the first byte.
const (
	pieceHere  = 'p' // the piece follows, after its CRC-32
	pieceTaken = 't'
	pieceBent  = 'b' // the piece is damaged
	pieceGone  = 'g' // the tensors are not expected, or are gone
)

// sendPiece sends a piece of the tensors of the member's own instruction.
func (d *Session) sendPiece(m *nats.Msg) {
	var a protocol.PieceRequest
	if err := protocol.DecodeStrict(m.Data, &a); err != nil || !protocol.SumText.MatchString(a.Sum) || a.Piece < 0 {
		d.dropMessage(subjects.PieceVerb, errors.New("it does not name a piece"))
		return
	}
	d.Mu.Lock()
	mine := d.Pending != nil && d.Pending.Sum == a.Sum
	d.Mu.Unlock()
	out := []byte{pieceGone}
	if size, err := d.Outbox.size(a.Sum); mine && err == nil && a.Piece < pieces(size) {
		from, to := bounds(size, a.Piece)
		b, err := d.Outbox.Read(a.Sum, from, to)
		if err == nil {
			out = append(binary.LittleEndian.AppendUint32([]byte{pieceHere}, crc(b)), b...)
			d.Mu.Lock()
			d.Down += int64(len(out))
			d.Mu.Unlock()
			d.Counters.Down.Add(int64(len(out)))
		} else if !errors.Is(err, ErrGone) {
			d.Log.Error("cannot read the tensors of an instruction", "error", err)
		}
	}
	d.Respond(m, d.Inbox, out)
}

// putHead is the header of a piece of a reply: identity of the instruction, number of the piece, CRC-32.
const putHead = 32 + 4 + 4

// receivePiece accepts a piece of the tensors of an announced reply.
func (d *Session) receivePiece(m *nats.Msg) {
	if len(m.Data) < putHead || len(m.Data) > putHead+pieceSize {
		d.dropMessage(subjects.PutVerb, fmt.Errorf("it has %d bytes; a piece has %d to %d", len(m.Data), putHead,
			putHead+pieceSize))
		return
	}
	state := byte(pieceGone)
	id, n, check, b := string(m.Data[:32]), binary.LittleEndian.Uint32(m.Data[32:]),
		binary.LittleEndian.Uint32(m.Data[36:]), m.Data[putHead:]
	if a := d.uploadOf(id); a != nil {
		state = pieceBent
		if crc(b) == check {
			ok, err := a.write(int(n), b)
			if errors.Is(err, os.ErrClosed) {
				state = pieceGone
			} else if err != nil {
				d.Log.Error("cannot keep a piece of a reply", "error", err)
			} else if ok {
				state = pieceTaken
			}
		}
	}
	d.Respond(m, d.Inbox, []byte{state})
}

// ReadJoin reads a member's request to join and its verified key; before is the member's previous key.
func (d *Session) ReadJoin(b []byte, request protocol.Joining, before []byte) (certs.Verifier, error) {
	f, err := protocol.Split(protocol.JoinMessage, b)
	if err == nil {
		err = protocol.DecodeStrict(f.Header, request)
	}
	i := request.Header()
	if err == nil && (i.Client != d.Number || !subjects.ID.MatchString(i.Nonce)) {
		err = fmt.Errorf("the request to join comes from client %d", i.Client)
	}
	if err == nil && i.Run != d.RunID {
		err = errors.New("the server started another run; restart the client")
	}
	if err != nil {
		return certs.Verifier{}, err
	}
	key, err := d.Identity.VerifierOf(i.Proof, d.user, before)
	if err == nil && !key.Verify(protocol.SigningDigest(protocol.JoinMessage, f.Header), f.Signature) {
		err = certs.ErrForged
	}
	return key, err
}
