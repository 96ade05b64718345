package remote

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/time/rate"
	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/tensor"
)

// fuzzed is a server of two clients. Client 0 has joined with 10 examples and must answer an instruction to train.
type fuzzed struct {
	*Server
	s *session
	o message.Instruction
	t testing.TB
}

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	h := newElection(t)
	h.set.ID, h.set.Clients, h.set.Largest, h.set.Limit = strings.Repeat("ab", 16), 2, 1<<20, 1<<10
	h.clients, h.decoding, h.joined = h.clients[:2], make(chan struct{}, 1), make(chan struct{}, 1)
	h.set.RunSpec = spec.RunSpec{Classes: methodtest.Classes, Template: "a {}."}
	h.runSpec = h.set.RunSpec
	for k := range h.clients {
		h.clients[k].budget = rate.NewLimiter(rate.Inf, budgetBurst)
	}
	if err := os.MkdirAll(filepath.Join(h.set.Dir, piecesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	f := &fuzzed{h, h.newSession(0, proof()), message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 2,
		Shared: tensor.Map{"ctx": tensor.New(2, 3)}}, t}
	k := &h.clients[0]
	k.Examples, k.session, k.Participant.Joined = 10, f.s, true
	f.renew()
	return f
}

// renew makes the server wait for the same reply again.
func (f *fuzzed) renew() *pending {
	f.mu.Lock()
	f.clients[0].finish()
	f.current = &collection{instruction: f.o, given: map[int]string{}, got: map[int]message.Reply{},
		failed: map[int]string{}, wake: make(chan struct{}, 1)}
	f.s.control, f.s.send = nil, nil
	f.limited = message.LimitedClients{}
	f.mu.Unlock()
	if err := f.send(f.current, 0); err != nil {
		f.t.Fatal(err)
	}
	return f.clients[0].pending
}

func marshal(t testing.TB, m protobuf.Message) []byte {
	t.Helper()
	b, err := protobuf.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A reply of any bytes counts only if its numbers are finite, its shapes are those of the instruction, and it has at
// most the examples that the client joined with.
func FuzzReply(f *testing.F) {
	d := newFuzzed(f)
	body, err := message.EncodeTensors(tensor.Map{"shared/ctx": tensor.New(2, 3)})
	if err != nil {
		f.Fatal(err)
	}
	r := &protocol.Reply{Examples: 5, Loss: 1, Steps: 2, Content: &protocol.Content{Body: body}}
	f.Add(marshal(f, r))
	r.Error = "x\x1b[31m"
	f.Add(marshal(f, r))
	r.Error, r.Loss = "", math.MaxFloat64
	r.Scores, err = json.Marshal(message.Scores{Examples: 1, Global: metrics.Statistics{"correct": {1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(marshal(f, r))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r protocol.Reply
		if protobuf.Unmarshal(b, &r) != nil {
			return
		}
		x := d.renew()
		r.Id, r.Attempt = x.Id, x.Attempt
		if c := r.Content; c != nil { // the right description, without which no change would get further
			c.Size, c.Sum = uint64(len(c.Body)), protocol.Checksum(c.Body)
		}
		if err := d.s.receiveReply(context.Background(), &r); err != nil {
			t.Fatal(err)
		}
		for client, got := range d.current.got {
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
		if strings.ContainsFunc(d.current.failed[0], func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%q", d.current.failed[0])
		}
	})
}

// A message of any bytes, after a reply that announces tensors in chunks, stores at most the announced bytes, sends
// only tensors of the client's instruction, and leaves the client its instruction.
func FuzzClientMessage(f *testing.F) {
	d := newFuzzed(f)
	announced := &protocol.Content{Size: 3 << 9, Sum: strings.Repeat("cd", 32)}
	chunk := func(offset uint64, size int) []byte {
		return marshal(f, &protocol.ClientMessage{Kind: &protocol.ClientMessage_Chunk{Chunk: &protocol.Chunk{
			Sum: announced.Sum, Offset: offset, Data: make([]byte, size)}}})
	}
	f.Add(chunk(0, 1<<9))
	f.Add(chunk(math.MaxUint64, 7))
	f.Add(chunk(0, 4<<9))
	f.Add(marshal(f, &protocol.ClientMessage{Kind: &protocol.ClientMessage_Fetch{Fetch: &protocol.Fetch{
		Sum: d.clients[0].pending.Content.Sum, Offset: 3}}}))
	f.Add(marshal(f, &protocol.ClientMessage{Kind: &protocol.ClientMessage_Leave{}}))
	f.Add(marshal(f, &protocol.ClientMessage{Kind: &protocol.ClientMessage_Join{Join: &protocol.Join{}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m protocol.ClientMessage
		if protobuf.Unmarshal(b, &m) != nil || m.GetReply() != nil {
			return
		}
		x := d.renew()
		x.most = 1 << 20
		err := d.s.receiveReply(context.Background(), &protocol.Reply{Id: x.Id, Attempt: x.Attempt, Examples: 1,
			Content: announced})
		if err != nil || x.upload == nil {
			t.Fatal(err)
		}
		if err := d.s.handle(context.Background(), &m); err != nil {
			t.Fatal(err)
		}
		if x.upload == nil { // all bytes have arrived, and have another checksum
			return
		}
		if info, err := x.upload.file.Stat(); err != nil || info.Size() != x.upload.have ||
			x.upload.have > int64(announced.Size) || d.clients[0].pending != x {
			t.Fatalf("%v, %v", info, err)
		}
		for range 3 {
			if c := d.s.next().GetChunk(); c != nil && (c.Sum != x.Content.Sum || len(c.Data) > len(x.body)) {
				t.Fatalf("%v", c)
			}
		}
	})
}

// A request of any bytes is admitted only with the terms of the run, a possible backbone and a number of examples.
func FuzzJoin(f *testing.F) {
	d := newFuzzed(f)
	c := protocol.JoinRequest{RunSpec: d.runSpec, Backbone: "b", Tokens: "t", Examples: 5}
	c.Participant.Task = methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	c.Participant.Task.Backbone = "toy"
	add := func() {
		b, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add()
	text, err := json.Marshal(c)
	if err != nil {
		f.Fatal(err)
	}
	if v := d.s.join(&protocol.Join{Run: d.set.ID, Instance: strings.Repeat("cd", 16), Request: text}); !v.Ok {
		f.Fatal(v)
	}
	c.Examples = math.MaxInt
	add()
	c.Participant.Task.Width, c.Participant.Domain = 1<<40, "../../x"
	add()
	f.Fuzz(func(t *testing.T, b []byte) {
		d.mu.Lock()
		d.clients[0] = clientRecord{budget: d.clients[0].budget}
		d.mu.Unlock()
		v := d.s.join(&protocol.Join{Run: d.set.ID, Instance: strings.Repeat("cd", 16), Request: b})
		if strings.ContainsFunc(v.Reason, func(r rune) bool { return r < ' ' }) || len(v.Reason) > protocol.MaxText+3 {
			t.Fatalf("%q", v.Reason)
		}
		k := &d.clients[0]
		if v.Ok != k.Participant.Joined || v.Ok != (k.session != nil) {
			t.Fatalf("%v, %+v", v, k)
		}
		if v.Ok && (k.Examples < 1 || !protocol.Label.MatchString(k.Participant.Domain) ||
			k.Participant.Task.Width > 1<<16 || d.set.fixedBy(k.RunSpec).Mismatch(k.RunSpec) != nil) {
			t.Fatalf("%+v", k)
		}
	})
}

// nineRounds executes the instructions of an experiment of nine rounds.
type nineRounds struct{ LocalExecutor }

func (nineRounds) Rounds() int { return 9 }

func (nineRounds) Execute(context.Context, message.Instruction, message.ClientState) (message.Reply,
	*message.ClientState, error) {
	return message.Reply{}, &message.ClientState{}, nil
}

func (nineRounds) Finish(message.Instruction, message.ClientState) error { return nil }

// newFuzzedClient returns a function that makes a client's stream, with a state that the server's checkpoint has.
func newFuzzedClient(f *testing.F) (fresh func() *clientStream, run, id string) {
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
	return func() *clientStream {
		c := &Client{Invitation: &Invitation{Run: run, Clients: 2, limit: 1, largest: 1 << 16}, executor: nineRounds{},
			store: v, log: slog.New(slog.DiscardHandler)}
		return &clientStream{Client: c, failed: make(chan struct{})}
	}, run, id
}

// A client executes a message of any bytes only if it is an instruction for itself, of a possible round, with tensors
// that it accepts, and keeps the state of the server's checkpoint.
func FuzzServerMessage(f *testing.F) {
	fresh, run, id := newFuzzedClient(f)
	body, err := message.EncodeTensors(tensor.Map{"shared/a": tensor.Scalar(1)})
	if err != nil {
		f.Fatal(err)
	}
	o := protocol.InstructionFor(run, message.Instruction{Kind: message.Train, Round: 2}, 0, 2,
		protocol.ContentOf(body))
	o.Attempt, o.Seq, o.Accepted, o.Safe = strings.Repeat("ef", 16), 1, id, id
	add := func() {
		f.Add(marshal(f, &protocol.ServerMessage{Kind: &protocol.ServerMessage_Instruction{Instruction: o}}))
	}
	add()
	o.Content.Body = body
	add()
	s := fresh()
	if err := s.receiveInstruction(protobuf.CloneOf(o)); err != nil || s.task == nil {
		f.Fatal(err)
	}
	s.task.stop()
	o.Kind = protocol.EndKind
	add()
	o.Content.Size = 1 << 40
	add()
	o.Accepted, o.Safe = "", ""
	add()
	f.Add(marshal(f, &protocol.ServerMessage{Kind: &protocol.ServerMessage_Chunk{Chunk: &protocol.Chunk{
		Sum: o.Content.Sum, Data: body}}}))
	f.Add(marshal(f, &protocol.ServerMessage{Kind: &protocol.ServerMessage_Fetch{Fetch: &protocol.Fetch{
		Sum: protocol.Checksum(nil), Offset: math.MaxUint64}}}))
	f.Add(marshal(f, &protocol.ServerMessage{Kind: &protocol.ServerMessage_Receipt{}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m protocol.ServerMessage
		if protobuf.Unmarshal(b, &m) != nil {
			return
		}
		if o := m.GetInstruction(); o != nil { // the right identity, without which no change would get further
			o.Id = protocol.IdentityOf(o)
		}
		s := fresh()
		if err := s.handle(&m); err != nil {
			t.Fatal(err)
		}
		x := s.task
		if x == nil {
			return
		}
		if err := s.handle(&m); err != nil { // again
			t.Fatal(err)
		}
		if x.Run != run || x.Client != 0 || x.Total != 2 || x.Round < 0 || x.Accepted != id ||
			x.Round >= 9 && x.Kind != protocol.EndKind {
			t.Fatalf("%v", x.Instruction)
		}
		if x.download != nil {
			if x.Content.Size > 1<<16 || filepath.Base(x.download.file.Name()) != chunksFile+x.Content.Sum {
				t.Fatalf("%v: %s", x.Content, x.download.file.Name())
			}
			os.Remove(x.download.file.Name())
		}
		x.running.Wait()
		if x.download == nil {
			if err := x.finish(<-x.done); err != nil {
				t.Fatal(err)
			}
			if r := x.message(1 << 10); r.Attempt != x.Attempt || protocol.CheckReply(r) != nil ||
				strings.ContainsFunc(r.Error, func(r rune) bool { return r < ' ' }) {
				t.Fatalf("%v", r)
			}
		}
		s.task.stop()
		if _, err := s.store.get(id); err != nil {
			t.Fatal(err)
		}
	})
}

// An invitation and an answer to a request to join of any bytes are valid or refused.
func FuzzAnswers(f *testing.F) {
	fresh, run, id := newFuzzedClient(f)
	f.Add(true, marshal(f, &protocol.Invitation{Version: protocol.Version, Run: run, Clients: 2, InlineLimit: 1,
		Config: []byte("name: x"), Classes: []string{"a"}}))
	f.Add(true, marshal(f, &protocol.Invitation{Version: 7}))
	f.Add(false, marshal(f, &protocol.JoinAnswer{Ok: true, Accepted: id, Safe: id, Seq: math.MaxInt64}))
	f.Add(false, marshal(f, &protocol.JoinAnswer{Ok: true, Accepted: protocol.NewID(), Safe: "../x"}))
	f.Fuzz(func(t *testing.T, invites bool, b []byte) {
		if invites {
			var v protocol.Invitation
			if protobuf.Unmarshal(b, &v) != nil {
				return
			}
			l := &Link{}
			l.server.Store(&certs.Peer{})
			inv, err := l.invitation(&v, 1, 1<<10)
			if err != nil {
				return
			}
			if !protocol.ID.MatchString(inv.Run) || inv.limit < 1 || inv.Clients < 2 || len(inv.Config) > 1<<10 {
				t.Fatalf("%+v", inv)
			}
			return
		}
		var v protocol.JoinAnswer
		if protobuf.Unmarshal(b, &v) == nil && fresh().joined(&v) == nil && v.Accepted != "" && v.Accepted != id {
			t.Fatalf("%v", &v)
		}
	})
}

// A status of any bytes is fit for a terminal or refused.
func FuzzStatus(f *testing.F) {
	b, err := json.Marshal(Status{Name: "\x1b[2J", Clients: []ClientStatus{{Domain: "a\nb", Reason: "\r"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readStatus(text)
		if err != nil {
			return
		}
		texts := []string{s.Name, s.Run, s.Kind, s.Set, s.Statistic}
		for _, c := range s.Clients {
			texts = append(texts, c.Doing, c.Backbone, c.Domain, c.Reason)
		}
		for _, text := range texts {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%q", text)
			}
		}
	})
}
