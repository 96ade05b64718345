package transport

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/natsserver"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
	"promptfed/runtime/tensor"
)

// Every kind of message as one would send it who has the right key: its header and what follows are any bytes, and are
// signed afterwards. Without that no mutation would get past the signature.

// fuzzed is a server in whose run client 0 has joined with testKey and has an order to train, which it answered nothing
// to; client 1 has not joined.
func fuzzed(f *testing.F) (*server0, protocol.Reply) {
	f.Helper()
	e, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Run: "toy", Limit: 1 << 20,
		Log: slog.New(slog.DiscardHandler)})
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
		Quorum: 1, Dir: f.TempDir(), RunSpec: terms, Method: m, Largest: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(h.Close)
	k := &h.clients[0]
	k.Key, k.Examples, k.Instance = transporttest.Verifier, 10, "i"
	k.Participant.Joined = true
	asked := message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 2,
		Shared: tensor.Map{"ctx": tensor.New(2, 3)}}
	h.current = &collection{order: asked, given: map[int]string{}, got: map[int]message.Reply{},
		failed: map[int]string{},
		again:  map[int]bool{}, wake: make(chan struct{}, 1)}
	if err := h.send(h.current, 0); err != nil {
		f.Fatal(err)
	}
	d := &server0{h.sessions[0], h, h.clients[0].Pending}
	r := protocol.Reply{Run: h.set.ID, ID: d.x.ID, Try: d.x.Try, N: 5, Loss: 1, Steps: 2,
		Content: protocol.Content{Size: d.x.Size,
			Sum: d.x.Sum}}
	return d, r
}

// server0 is a server as client 0 finds it.
type server0 struct {
	*exchange.Session
	h *Server
	x *exchange.Pending
}

// afresh makes the server wait for the same reply again.
func (d *server0) afresh() {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	d.End(d.Pending)
	d.x = &exchange.Pending{Instruction: d.x.Instruction, Read: d.x.Read, Fail: d.x.Fail, Most: d.x.Most}
	d.Pending = d.x
	clear(d.h.current.got)
	clear(d.h.current.failed)
}

// from0 is a message that comes by a subject of client 0.
func from0(verb string, b []byte) *nats.Msg {
	return &nats.Msg{Subject: "pf.toy.from.0." + verb, Reply: "pf.toy.to.0.x", Data: b}
}

// Whatever a client signs as its reply, what counts is finite, of the shape that was asked for, and of no more examples
// than it joined with.
func FuzzReply(f *testing.F) {
	d, r := fuzzed(f)
	body, _ := d.Outbox.Read(r.Sum, 0, r.Size)
	f.Add(transporttest.Text(f, r), body)
	r.Detach()
	f.Add(transporttest.Text(f, r), []byte{})
	r.Error = "x\x1b[31m"
	f.Add(transporttest.Text(f, r), []byte{})
	r.Error, r.Scores = "", &message.Scores{Examples: 1, Global: metrics.Statistics{"correct": {1}}}
	r.Loss = math.MaxFloat64
	f.Add(transporttest.Text(f, r), body)
	f.Fuzz(func(t *testing.T, header, body []byte) {
		d.afresh()
		d.Handle(from0(subjects.ReplyVerb, transporttest.Forge(t, protocol.ReplyMessage, header, body)))
		for client, got := range d.h.current.got {
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
	})
}

// Whatever a client signs to join, it is one that may: with the run's terms, a sound backbone and a number of examples.
func FuzzJoin(f *testing.F) {
	d, _ := fuzzed(f)
	p := transporttest.Proof(f)
	card := protocol.JoinRequest{JoinHeader: protocol.JoinHeader{Run: d.RunID, Instance: "i", Nonce: subjects.NewID(),
		Proof: p}, RunSpec: d.h.runSpec,
		Backbone: "b", Tokens: "t", Examples: 5}
	card.Participant.Task = methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	card.Participant.Task.Backbone = "toy"
	f.Add(transporttest.Text(f, card))
	card.Examples = math.MaxInt
	f.Add(transporttest.Text(f, card))
	card.Participant.Task.Width, card.Participant.Domain = 1<<40, "../../x"
	f.Add(transporttest.Text(f, card))
	f.Fuzz(func(t *testing.T, header []byte) {
		d.Mu.Lock()
		d.h.clients[0] = clientRecord{}
		d.Mu.Unlock()
		d.h.Join(d.Session, from0(subjects.JoinVerb, transporttest.Forge(t, protocol.JoinMessage, header, nil)))
		k := d.h.clients[0]
		if !k.Participant.Joined {
			return
		}
		if k.Examples < 1 || k.Client != 0 || k.Run != d.RunID || !protocol.Label.MatchString(k.Participant.Domain) ||
			k.Participant.Task.Width > 1<<16 || d.h.set.fixedBy(k.RunSpec).Mismatch(k.RunSpec) != nil {
			t.Fatalf("%+v", k)
		}
	})
}

// fuzzedClient is a client with the server's key and a state that the server's checkpoint has.
func fuzzedClient(f *testing.F) (fresh func(t testing.TB) *exchange.Client, run string, v *stateStore, id string) {
	f.Helper()
	run, id = strings.Repeat("ab", 16), strings.Repeat("cd", 16)
	v, err := openStateStore(f.TempDir(), run, 0, nil)
	if err == nil {
		err = v.put(1, id, message.ClientState{})
	}
	if err != nil {
		f.Fatal(err)
	}
	v.Safe = id
	hello := protocol.HelloReply{Version: protocol.Version, Run: run, Clients: 2, Limit: 1,
		Proof: transporttest.Proof(f)}
	inv, err := exchange.ParseInvitation(transporttest.Pack(f, protocol.HelloMessage, hello, nil), "",
		certs.Identity{})
	if err != nil {
		f.Fatal(err)
	}
	inv.Address, inv.Largest = subjects.Names("toy").Client(0), 1<<20
	log := slog.New(slog.DiscardHandler)
	return func(t testing.TB) *exchange.Client {
		t.Helper()
		a, err := exchange.NewClient(nil, inv, certs.Identity{Signer: transporttest.Key}, "i", &protocol.JoinRequest{},
			&clientRole{Invitation: inv, executor: nineRounds{}, store: v, log: log}, log)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}, run, v, id
}

// nineRounds is what does the orders of an experiment of nine rounds; nobody gives it any.
type nineRounds struct{ LocalExecutor }

func (nineRounds) Rounds() int { return 9 }

// Whatever the server signs as an order is for this client, of a round that there is, of tensors that may come, and
// leaves what the checkpoint has.
func FuzzOrder(f *testing.F) {
	fresh, run, v, id := fuzzedClient(f)
	body, err := message.EncodeTensors(tensor.Map{"shared/a": tensor.Scalar(1)})
	if err != nil {
		f.Fatal(err)
	}
	o := protocol.Instruction{Run: run, Try: subjects.NewID(), Seq: 1, Kind: string(message.Train), Round: 2, Total: 2,
		Accepted: id,
		Safe:     id}
	o.SetBody(body)
	f.Add(transporttest.Text(f, o), body)
	o.Kind = protocol.EndKind
	f.Add(transporttest.Text(f, o), body)
	o.Size, o.Object = 1<<40, "../../x"
	f.Add(transporttest.Text(f, o), []byte{})
	o.Accepted, o.Safe = "", ""
	f.Add(transporttest.Text(f, o), []byte{})
	f.Fuzz(func(t *testing.T, header, body []byte) {
		var o protocol.Instruction
		if protocol.DecodeStrict(header, &o) == nil { // the identity that is right, or no mutation would get past it
			o.ID = o.Identity()
			header = transporttest.Text(t, o)
		}
		j := fresh(t).Receive(&nats.Msg{Data: transporttest.Forge(t, protocol.InstructionMessage, header, body)})
		if j == nil {
			return
		}
		if j.Instruction.Run != run || j.Client != 0 || j.Total != 2 || j.Round < 0 || j.Accepted != id ||
			j.Round >= 9 && j.Kind != protocol.EndKind || j.Object != "" &&
			!subjects.ID.MatchString(j.Object) {
			t.Fatalf("%+v", j.Instruction)
		}
		if j.Object == "" {
			if m, err := j.Content.Tensors(j.Body); err == nil {
				j.Message().WithTensors(m)
			}
		}
		if err := v.prune(j.Instruction); err != nil {
			t.Fatal(err)
		}
		if _, err := v.get(id); err != nil {
			t.Fatal(err)
		}
	})
}

// Whatever comes as a status is fit for a terminal or refused.
func FuzzStatus(f *testing.F) {
	f.Add(transporttest.Text(f, Status{Name: "\x1b[2J", Clients: []ClientStatus{{Domain: "a\nb"}}}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readStatus(text)
		if err != nil {
			return
		}
		texts := []string{s.Name, s.Kind, s.Set, s.Statistic}
		for _, c := range s.Clients {
			texts = append(texts, c.Doing, c.Backbone, c.Domain)
		}
		for _, text := range texts {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%q", text)
			}
		}
	})
}
