package transport

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// Every kind of message as one would send it who has the right key: its header and what follows are any bytes, and are
// signed afterwards. Without that no mutation would get past the signature.

// forged is a message of any header and body, signed by testKey.
func forged(t testing.TB, what string, header, body []byte) []byte {
	t.Helper()
	if len(header) > headerLimit(what) {
		t.Skip()
	}
	s, err := signer{testKey}.sign(digest(what, header))
	if err != nil {
		t.Fatal(err)
	}
	b := binary.LittleEndian.AppendUint32(slices.Clone(magic[:]), uint32(len(header)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return slices.Concat(b, header, s, body)
}

// fuzzed is a server in whose run client 0 has joined with testKey and has an order to train, which it answered nothing
// to; client 1 has not joined.
func fuzzed(f *testing.F) (*server0, reply) {
	f.Helper()
	e, err := Embed(Embedding{Listen: "127.0.0.1:0", Run: "toy", Limit: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.Close)
	m, err := methods.Build("promptfl", nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	terms := spec.RunSpec{Classes: methodtest.Classes, Template: "a {}."}
	h, err := Open(context.Background(), e.Conn(), Settings{Name: "toy", ID: strings.Repeat("ab", 16), Clients: 2,
		Quorum: 1, Dir: f.TempDir(), Terms: terms, Method: m, Largest: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(h.Close)
	k := &h.known[0]
	k.key, k.Examples, k.instance = verifier{key: testKey.Public()}, 10, "i"
	k.Member.Joined = true
	asked := message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 2,
		Shared: tensor.Map{"ctx": tensor.New(2, 3)}}
	h.now = &collection{order: asked, given: map[int]string{}, got: map[int]message.Reply{}, failed: map[int]string{},
		again: map[int]bool{}, wake: make(chan struct{}, 1)}
	if err := h.send(h.now, 0); err != nil {
		f.Fatal(err)
	}
	d := &server0{h.desks[0], h, h.known[0].now}
	d.talk = bucket{rate: 1e9, burst: 1e9}
	r := reply{Run: h.set.ID, ID: d.x.ID, Try: d.x.Try, N: 5, Loss: 1, Steps: 2, content: content{Size: d.x.Size,
		Sum: d.x.Sum}}
	return d, r
}

// server0 is a server as client 0 finds it.
type server0 struct {
	*desk
	h *Hub
	x *exchange
}

// afresh makes the server wait for the same reply again.
func (d *server0) afresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.x.upload.close()
	d.x.upload, d.x.wrong, d.now = nil, 0, d.x
	clear(d.h.now.got)
	clear(d.h.now.failed)
}

// asText is a header as it is sent.
func asText(t testing.TB, header any) []byte {
	t.Helper()
	b, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// from0 is a message that comes by a subject of client 0.
func from0(verb string, b []byte) *nats.Msg {
	return &nats.Msg{Subject: "pf.toy.from.0." + verb, Reply: "pf.toy.to.0.x", Data: b}
}

// Whatever a client signs as its reply, what counts is finite, of the shape that was asked for, and of no more examples
// than it joined with.
func FuzzReply(f *testing.F) {
	d, r := fuzzed(f)
	body, _ := d.spool.read(r.Sum, 0, r.Size)
	f.Add(asText(f, r), body)
	r.away()
	f.Add(asText(f, r), []byte{})
	r.Error = "x\x1b[31m"
	f.Add(asText(f, r), []byte{})
	r.Error, r.Scores = "", &message.Scores{}
	r.Loss = math.MaxFloat64
	f.Add(asText(f, r), body)
	f.Fuzz(func(t *testing.T, header, body []byte) {
		d.afresh()
		d.reply(from0(replyVerb, forged(t, replyMessage, header, body)))
		for client, got := range d.h.now.got {
			x := got.Upload.Shared["ctx"]
			if client != 0 || len(got.Upload.Shared) != 1 || x == nil || !slices.Equal(x.Shape, []int{2, 3}) ||
				got.Upload.N < 1 || got.Upload.N > 10 || math.IsNaN(got.Stats.Loss) || math.IsInf(got.Stats.Loss, 0) {
				t.Fatalf("client %d: %+v", client, got)
			}
			for _, v := range x.Data {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					t.Fatal(x.Data)
				}
			}
		}
		if a := d.x.upload; a != nil && a.size > d.largest {
			t.Fatalf("%d bytes are awaited", a.size)
		}
	})
}

// Whatever a client signs as its sign of life, the order that it has not answered stays its own.
func FuzzBeat(f *testing.F) {
	d, r := fuzzed(f)
	f.Add(asText(f, beat{Run: d.id, Instance: "i", Count: 1, Doing: idle, Try: r.Try}))
	f.Add(asText(f, beat{Run: d.id, Instance: "i", Count: math.MaxInt64, Leaves: true}))
	f.Add(asText(f, beat{Run: d.id, Instance: "j", Count: 2, Doing: "\x1b[2J"}))
	f.Fuzz(func(t *testing.T, header []byte) {
		d.mu.Lock()
		d.beats, d.left = 0, false
		d.mu.Unlock()
		d.beat(from0(beatVerb, forged(t, beatMessage, header, nil)))
		k := d.h.known[0]
		if strings.ContainsFunc(k.doing, func(r rune) bool { return r < ' ' }) || len(k.doing) > maxError+3 ||
			!d.h.now.waits(0) || d.now != d.x || !k.Member.Joined || k.instance != "i" {
			t.Fatalf("%+v", k)
		}
	})
}

// Whatever a client signs to join, it is one that may: with the run's terms, a sound backbone and a number of examples.
func FuzzJoin(f *testing.F) {
	d, _ := fuzzed(f)
	who := Identity{key: testKey}
	p, err := who.proof()
	if err != nil {
		f.Fatal(err)
	}
	card := Card{introduction: introduction{Run: d.id, Instance: "i", Nonce: NewID(), Proof: p}, Terms: d.h.terms,
		Backbone: "b", Tokens: "t", Examples: 5}
	card.Member.Task = methodtest.Alike(1)[0].Backbone.Task()
	card.Member.Task.Backbone = "toy"
	f.Add(asText(f, card))
	card.Examples = math.MaxInt
	f.Add(asText(f, card))
	card.Member.Task.Width, card.Member.Domain = 1<<40, "../../x"
	f.Add(asText(f, card))
	f.Fuzz(func(t *testing.T, header []byte) {
		d.mu.Lock()
		d.h.known[0] = member{}
		d.mu.Unlock()
		d.run.join(d.desk, from0(joinVerb, forged(t, joinMessage, header, nil)))
		k := d.h.known[0]
		if !k.Member.Joined {
			return
		}
		if k.Examples < 1 || k.Client != 0 || k.Run != d.id || !word.MatchString(k.Member.Domain) ||
			k.Member.Task.Width > 1<<16 || d.h.terms.Mismatch(k.Terms) != nil || len(d.h.terms.Classes) == 0 {
			t.Fatalf("%+v", k)
		}
	})
}

// Whatever comes as a piece of a reply, or asks for a piece of an order, stays within what is awaited.
func FuzzPiece(f *testing.F) {
	d, r := fuzzed(f)
	r.Size, r.Sum = 2*piece+7, strings.Repeat("cd", 32)
	r.away()
	announced := asText(f, r)
	one := func(n uint32, b []byte) []byte {
		m := binary.LittleEndian.AppendUint32([]byte(r.ID), n)
		return append(binary.LittleEndian.AppendUint32(m, crc(b)), b...)
	}
	f.Add(one(2, make([]byte, 7)), true)
	f.Add(one(1<<31, make([]byte, 7)), true)
	f.Add(asText(f, ask{d.x.Sum, 0}), false)
	f.Add(asText(f, ask{strings.Repeat("0", 64), -1}), false)
	f.Fuzz(func(t *testing.T, b []byte, put bool) {
		if !put {
			d.part(from0(partVerb, b))
			return
		}
		d.afresh()
		d.reply(from0(replyVerb, forged(t, replyMessage, announced, nil)))
		if len(b) >= putHead { // with the checksum that is right
			binary.LittleEndian.PutUint32(b[36:], crc(b[putHead:]))
		}
		d.put(from0(putVerb, b))
		a := d.x.upload
		if a == nil || a.left < 2 || a.left > 3 {
			t.Fatalf("%+v", a)
		}
		if info, err := a.file.Stat(); err != nil || info.Size() > int64(a.size) {
			t.Fatalf("%v, %v", info, err)
		}
	})
}

// fuzzedAgent is a client with the server's testKey and a state that the server's checkpoint has.
func fuzzedAgent(f *testing.F) (*Agent, *vault, string) {
	f.Helper()
	run, id := strings.Repeat("ab", 16), strings.Repeat("cd", 16)
	v, err := openVault(f.TempDir(), run, 0, nil)
	if err == nil {
		err = v.put(1, id, message.ClientState{})
	}
	if err != nil {
		f.Fatal(err)
	}
	v.Safe = id
	a := &Agent{Invitation: &Invitation{Run: run, Clients: 2, largest: 1 << 20, subjects: names{"toy"}.client(0)},
		log: slog.New(slog.DiscardHandler)}
	a.role = &clientRole{Invitation: a.Invitation, vault: v, rounds: 9, log: a.log}
	a.server.Store(&verifier{key: testKey.Public()})
	return a, v, id
}

// Whatever the server signs as an order is for this client, of a round that there is, of tensors that may come, and
// leaves what the checkpoint has.
func FuzzOrder(f *testing.F) {
	a, v, id := fuzzedAgent(f)
	body, err := wire.Encode(tensor.Map{"shared/a": tensor.Scalar(1)})
	if err != nil {
		f.Fatal(err)
	}
	o := order{Run: a.Invitation.Run, Try: NewID(), Seq: 1, Kind: string(message.Train), Round: 2, Of: 2, Accepted: id,
		Safe: id}
	o.of(body)
	f.Add(asText(f, o), body)
	o.Kind = endKind
	f.Add(asText(f, o), body)
	o.Size, o.Object = 1<<40, "../../x"
	f.Add(asText(f, o), []byte{})
	o.Accepted, o.Safe = "", ""
	f.Add(asText(f, o), []byte{})
	f.Fuzz(func(t *testing.T, header, body []byte) {
		a.seq, a.try = 0, ""
		var o order
		if strict(header, &o) == nil { // the identity that is right, or no mutation would get past it
			o.ID = o.identity()
			header = asText(t, o)
		}
		j := a.receive(&nats.Msg{Data: forged(t, orderMessage, header, body)})
		if j == nil {
			return
		}
		if j.order.Run != a.Invitation.Run || j.Client != 0 || j.Of != 2 || j.Round < 0 || j.Accepted != id ||
			j.Round >= 9 && j.Kind != endKind || j.Size > 1<<20 || j.Object != "" && !hash.MatchString(j.Object) {
			t.Fatalf("%+v", j.order)
		}
		if j.Object == "" {
			if m, err := j.content.tensors(j.body); err == nil {
				j.asked().With(m)
			}
		}
		if err := v.keep(j.order); err != nil {
			t.Fatal(err)
		}
		if _, err := v.get(id); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever the server signs as an answer to a question, to a card or to a reply, and whatever comes as a status, is
// understood or refused.
func FuzzAnswers(f *testing.F) {
	who := Identity{}
	p, err := Identity{key: testKey}.proof()
	if err != nil {
		f.Fatal(err)
	}
	q := question{Nonce: NewID()}
	f.Add("hello", asText(f, hello{Version: Version, Run: NewID(), Nonce: q.Nonce, Clients: 2, Limit: 1, Largest: 1,
		Config: []byte("name: x"), Classes: []string{"a"}, Proof: p}))
	f.Add("hello", asText(f, hello{Version: Version, Nonce: q.Nonce, Refused: "\x1b[2J", Proof: p}))
	f.Add("verdict", asText(f, verdict{OK: true, Nonce: q.Nonce, Seq: math.MaxInt64, Accepted: NewID(), Safe: "../x"}))
	f.Add("receipt", asText(f, receipt{NewID(), NewID(), pending, []byte{255}}))
	f.Add("status", asText(f, Status{Name: "\x1b[2J", Clients: []ClientStatus{{Domain: "a\nb"}}}))
	f.Fuzz(func(t *testing.T, what string, header []byte) {
		v := verifier{key: testKey.Public()}
		switch what {
		case helloMessage:
			inv, err := invited(forged(t, what, header, nil), q, who)
			if err != nil {
				if strings.ContainsRune(err.Error(), 0x1b) {
					t.Fatalf("%q", err)
				}
				return
			}
			if !hash.MatchString(inv.Run) || inv.limit < 1 || inv.largest < 1 {
				t.Fatalf("%+v", inv)
			}
		case verdictMessage:
			var h verdict
			unpack(v, what, forged(t, what, header, nil), &h)
		case receiptMessage:
			var h receipt
			unpack(v, what, forged(t, what, header, nil), &h)
		case "status":
			s, err := readStatus(header)
			if err != nil {
				return
			}
			for _, text := range append([]string{s.Name, s.Kind, s.Exam, s.Survey}, textsOf(s)...) {
				if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
					t.Fatalf("%q", text)
				}
			}
		}
	})
}

func textsOf(s *Status) (out []string) {
	for _, c := range s.Clients {
		out = append(out, c.Doing, c.Backbone, c.Domain)
	}
	return out
}
