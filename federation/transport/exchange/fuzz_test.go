package exchange

import (
	"encoding/binary"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/natsserver"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
)

// responder is the run of a member in these tests.
type responder struct{}

func (responder) Hello(*Session, protocol.HelloRequest) protocol.HelloReply {
	return protocol.HelloReply{}
}
func (responder) Join(*Session, *nats.Msg)       {}
func (responder) PresenceChanged(*Session, bool) {}

// fuzzed is a session of client 0, which has joined with the tests' key and has an order that it answered nothing to,
// and the header of a reply to it. renew makes the host wait for the same reply again.
func fuzzed(f *testing.F) (s *Session, r protocol.Reply, renew func() *Pending) {
	f.Helper()
	e, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Run: "toy", Limit: 1 << 20,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.Close)
	h := NewHost(e.Conn(), strings.Repeat("ab", 16), 1<<10, 1<<20, f.TempDir(), slog.New(slog.DiscardHandler))
	if err := h.UseKey(certs.Identity{Signer: transporttest.Key}, ""); err != nil {
		f.Fatal(err)
	}
	p := &MemberState{Key: transporttest.Verifier, Instance: "i"}
	session := h.NewSession(subjects.Names("toy").Client(0), p, 0, certs.UserOf(0), responder{}, h.Log)
	o := protocol.Instruction{Run: h.RunID, Kind: "train", Total: 2}
	o.SetBody([]byte("tensors"))
	o.ID = o.Identity()
	if err := h.Outbox.Put(o.Sum, []byte("tensors")); err != nil {
		f.Fatal(err)
	}
	renew = func() *Pending {
		h.Mu.Lock()
		session.End(p.Pending)
		h.Mu.Unlock()
		x := &Pending{Instruction: o, Most: 1 << 20, Fail: func(string, error) {},
			Read: func(protocol.Reply, []byte, int) (func(), error) { return func() {}, nil }}
		if err := session.Deliver(x); err != nil {
			panic(err)
		}
		return x
	}
	x := renew()
	return &session, protocol.Reply{Run: h.RunID, ID: x.ID, Try: x.Try, N: 5, Content: x.Content}, renew
}

// from0 is a message that comes by a subject of client 0.
func from0(verb string, b []byte) *nats.Msg {
	return &nats.Msg{Subject: "pf.toy.from.0." + verb, Reply: "pf.toy.to.0.x", Data: b}
}

// Whatever a client signs as its sign of life, the order that it has not answered stays its own.
func FuzzHeartbeat(f *testing.F) {
	d, r, _ := fuzzed(f)
	x := d.Pending
	f.Add(transporttest.Text(f, protocol.Heartbeat{Run: d.RunID, Instance: "i", Count: 1, Doing: Idle, Try: r.Try}))
	f.Add(transporttest.Text(f, protocol.Heartbeat{Run: d.RunID, Instance: "i", Count: math.MaxInt64, Leaves: true}))
	f.Add(transporttest.Text(f, protocol.Heartbeat{Run: d.RunID, Instance: "j", Count: 2, Doing: "\x1b[2J"}))
	f.Fuzz(func(t *testing.T, header []byte) {
		d.Mu.Lock()
		d.Beats, d.Left = 0, false
		d.Mu.Unlock()
		d.heartbeat(from0(subjects.HeartbeatVerb, transporttest.Forge(t, protocol.HeartbeatMessage, header, nil)))
		k := d.MemberState
		if strings.ContainsFunc(k.Activity, func(r rune) bool { return r < ' ' }) ||
			len(k.Activity) > protocol.MaxError+3 ||
			d.Pending != x || k.Instance != "i" {
			t.Fatalf("%+v", k)
		}
	})
}

// Whatever comes as a piece of a reply, or asks for a piece of an order, stays within what is awaited.
func FuzzPiece(f *testing.F) {
	d, r, renew := fuzzed(f)
	order := d.Pending.Sum
	r.Size, r.Sum = 2*pieceSize+7, strings.Repeat("cd", 32)
	r.Detach()
	announced := transporttest.Text(f, r)
	one := func(n uint32, b []byte) []byte {
		m := binary.LittleEndian.AppendUint32([]byte(r.ID), n)
		return append(binary.LittleEndian.AppendUint32(m, crc(b)), b...)
	}
	f.Add(one(2, make([]byte, 7)), true)
	f.Add(one(1<<31, make([]byte, 7)), true)
	f.Add(transporttest.Text(f, protocol.PieceRequest{Sum: order}), false)
	f.Add(transporttest.Text(f, protocol.PieceRequest{Sum: strings.Repeat("0", 64), Piece: -1}), false)
	f.Fuzz(func(t *testing.T, b []byte, put bool) {
		if !put {
			d.sendPiece(from0(subjects.PieceVerb, b))
			return
		}
		x := renew()
		d.receiveReply(from0(subjects.ReplyVerb, transporttest.Forge(t, protocol.ReplyMessage, announced, nil)))
		if len(b) >= putHead { // with the checksum that is right
			binary.LittleEndian.PutUint32(b[36:], crc(b[putHead:]))
		}
		d.receivePiece(from0(subjects.PutVerb, b))
		a := x.upload
		if a == nil || a.left < 2 || a.left > 3 {
			t.Fatalf("%+v", a)
		}
		if info, err := a.file.Stat(); err != nil || info.Size() > int64(a.size) {
			t.Fatalf("%v, %v", info, err)
		}
	})
}

// Whatever the server signs as an answer to a question, to a request to join or to a reply is
// understood or refused.
func FuzzAnswers(f *testing.F) {
	who := certs.Identity{}
	p := transporttest.Proof(f)
	q := protocol.Question("pf.toy.from.0.hello", []byte(subjects.NewID()))
	f.Add("hello", transporttest.Text(f, protocol.HelloReply{Version: protocol.Version, Run: subjects.NewID(),
		Question: q, Clients: 2, Limit: 1,
		Config: []byte("name: x"), Classes: []string{"a"}, Proof: p}))
	f.Add("hello", transporttest.Text(f, protocol.HelloReply{Version: protocol.Version, Question: q,
		Refused: "\x1b[2J", Proof: p}))
	f.Add("verdict", transporttest.Text(f, protocol.JoinReply{OK: true, Question: q, Seq: math.MaxInt64,
		Accepted: subjects.NewID(), Safe: "../x"}))
	f.Add("receipt", transporttest.Text(f, protocol.Receipt{ID: subjects.NewID(), Try: subjects.NewID(),
		State: protocol.ReceiptPending,
		Have:  []byte{255}}))
	f.Fuzz(func(t *testing.T, what string, header []byte) {
		v := transporttest.Verifier
		switch what {
		case protocol.HelloMessage:
			inv, err := ParseInvitation(transporttest.Forge(t, what, header, nil), q, who)
			if err != nil {
				if strings.ContainsRune(err.Error(), 0x1b) {
					t.Fatalf("%q", err)
				}
				return
			}
			if !subjects.ID.MatchString(inv.Run) || inv.Limit < 1 {
				t.Fatalf("%+v", inv)
			}
		case protocol.JoinReplyMessage:
			var h protocol.JoinReply
			protocol.Unpack(v, what, transporttest.Forge(t, what, header, nil), &h)
		case protocol.ReceiptMessage:
			var h protocol.Receipt
			protocol.Unpack(v, what, transporttest.Forge(t, what, header, nil), &h)
		}
	})
}
