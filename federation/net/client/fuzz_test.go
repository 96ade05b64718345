package client

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// nineRounds executes the instructions of an experiment of nine rounds.
type nineRounds struct{ LocalExecutor }

func (nineRounds) Rounds() int { return 9 }

func (nineRounds) Execute(context.Context, message.Instruction, message.ClientState) (message.Reply,
	*message.ClientState, error) {
	return message.Reply{}, &message.ClientState{}, nil
}

func (nineRounds) Finish(message.Instruction, message.ClientState) error { return nil }

// newFuzzedClient returns a function that makes a client, with a state that the server's checkpoint has.
func newFuzzedClient(f *testing.F) (fresh func() *Client, run, id string) {
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
	return func() *Client {
		return &Client{Invitation: &Invitation{Run: run, Clients: 2, limit: 1, largest: 1 << 16},
			executor: nineRounds{}, store: v, log: slog.New(slog.DiscardHandler)}
	}, run, id
}

// A client executes the instruction in a part of any bytes only if the instruction is for itself, of a possible round,
// with tensors that it accepts, and keeps the state of the server's checkpoint.
func FuzzServerMessage(f *testing.F) {
	fresh, run, id := newFuzzedClient(f)
	body := []byte(nettest.BytesOf(f, tensor.Map{"shared/a": tensor.Scalar(1)}))
	o := wire.InstructionFor(run, message.Instruction{Kind: message.Train, Round: 2}, 0, 2, wire.ContentOf(body))
	o.Attempt, o.Seq, o.Accepted, o.Safe = strings.Repeat("ef", 16), 1, id, id
	add := func() { f.Add(nettest.Marshal(f, &wire.Part{Instruction: o})) }
	add()
	o.Content.Body = body
	add()
	c := fresh()
	c.receive(received{Instruction: protobuf.CloneOf(o), dropped: c.check(o, c.seq), body: body})
	if c.task == nil {
		f.Fatal("an honest instruction is dropped")
	}
	c.task.stop()
	o.Kind = wire.EndKind
	add()
	o.Content.Size = 1 << 40
	add()
	o.Accepted, o.Safe = "", ""
	add()
	f.Add(nettest.Marshal(f, &wire.Part{Data: body}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p wire.Part
		if protobuf.Unmarshal(b, &p) != nil {
			return
		}
		if o := p.Instruction; o != nil { // the right identity, without which no change would get further
			o.Id = wire.IdentityOf(o)
		}
		c := fresh()
		r := c.open(&wire.Ask{Seq: c.seq}, &p, func() (*wire.Part, error) { return &p, nil })
		if r.err != nil {
			return
		}
		c.receive(r)
		x := c.task
		if x == nil {
			return
		}
		c.receive(received{Instruction: r.Instruction, dropped: c.check(r.Instruction, c.seq), body: r.body}) // again
		if c.task != x || x.Run != run || x.Client != 0 || x.Total != 2 || x.Round < 0 || x.Accepted != id ||
			x.Round >= 9 && x.Kind != wire.EndKind || len(r.body) > 1<<16 {
			t.Fatalf("%v", x.Instruction)
		}
		x.running.Wait()
		goldentest.NoError(t, x.finish(<-x.done))
		if r := x.message(1 << 10); r.Attempt != x.Attempt || wire.CheckReply(r) != nil ||
			strings.ContainsFunc(r.Error, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%v", r)
		}
		c.task.stop()
		if _, err := c.store.get(id); err != nil {
			t.Fatal(err)
		}
	})
}

// An invitation and an answer to a request to join of any bytes are valid or refused.
func FuzzAnswers(f *testing.F) {
	fresh, run, id := newFuzzedClient(f)
	f.Add(true, nettest.Marshal(f, &wire.Invitation{Version: wire.Version, Run: run, Clients: 2, InlineLimit: 1,
		Config: []byte("name: x"), Classes: []string{"a"}}))
	f.Add(true, nettest.Marshal(f, &wire.Invitation{Version: 7}))
	f.Add(false, nettest.Marshal(f, &wire.JoinAnswer{Accepted: id, Safe: id}))
	f.Add(false, nettest.Marshal(f, &wire.JoinAnswer{Accepted: wire.NewID(), Safe: "../x"}))
	f.Fuzz(func(t *testing.T, invites bool, b []byte) {
		if invites {
			var v wire.Invitation
			if protobuf.Unmarshal(b, &v) != nil {
				return
			}
			l := &Link{}
			l.server.Store(&certs.Peer{})
			inv, err := l.invitation(&v, 1, 1<<10)
			if err != nil {
				return
			}
			if !wire.ID.MatchString(inv.Run) || inv.limit < 1 || inv.Clients < 2 || len(inv.Config) > 1<<10 {
				t.Fatalf("%+v", inv)
			}
			return
		}
		var v wire.JoinAnswer
		if protobuf.Unmarshal(b, &v) == nil && fresh().joined(&v) == nil && v.Accepted != "" && v.Accepted != id {
			t.Fatalf("%v", &v)
		}
	})
}
