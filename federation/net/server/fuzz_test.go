package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// fuzzed is a server of two clients. Client 0 has joined with 10 examples and must answer an instruction to train.
type fuzzed struct {
	*Server
	o message.Instruction
	t testing.TB
}

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	set := newLimited(t, nil).set
	set.ID, set.Clients, set.Largest, set.Limit = strings.Repeat("ab", 16), 2, 1<<20, 1<<10
	set.RunSpec = spec.RunSpec{Classes: methodtest.Classes, Template: "a {}."}
	f := &fuzzed{newElectionOf(t, set), message.Instruction{Kind: message.Train, Clients: []int{0}, Total: 2,
		Shared: tensor.Map{"ctx": tensor.New(2, 3)}}, t}
	f.change(0, func(m *member) { m.Examples, m.joined = 10, true })
	return f
}

// renew makes the server wait for the same reply again.
func (f *fuzzed) renew() (*pending, *collection) {
	f.mail.clear()
	c := newCollection(f.o)
	f.current.Store(c)
	f.Report()
	if err := f.send(c, 0); err != nil {
		f.t.Fatal(err)
	}
	return f.mail.box(0).pending, c
}

// A reply of any bytes counts only if its numbers are finite, its shapes are those of the instruction, and it has at
// most the examples that the client joined with.
func FuzzReply(f *testing.F) {
	d := newFuzzed(f)
	body := []byte(nettest.BytesOf(f, tensor.Map{"shared/ctx": tensor.New(2, 3)}))
	r := &wire.Reply{Examples: 5, Loss: 1, Steps: 2, Content: &wire.Content{Body: body}}
	f.Add(nettest.Marshal(f, r))
	r.Error = "x\x1b[31m"
	f.Add(nettest.Marshal(f, r))
	r.Error, r.Loss = "", math.MaxFloat64
	r.Scores = goldentest.JSON(f, message.Scores{Examples: 1, Global: metrics.Statistics{"correct": {1}}})
	f.Add(nettest.Marshal(f, r))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r wire.Reply
		if protobuf.Unmarshal(b, &r) != nil {
			return
		}
		x, current := d.renew()
		r.Id, r.Attempt = x.Id, x.Attempt
		if c := r.Content; c != nil { // the right description, without which no change would get further
			c.Size, c.Sum = uint64(len(c.Body)), wire.Checksum(c.Body)
		}
		none := func() (*wire.Part, error) { return nil, io.EOF }
		goldentest.NoError(t, d.receive(context.Background(), 0, &r, none))
		for client, got := range current.got {
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
		if strings.ContainsFunc(current.failed[0], func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%q", current.failed[0])
		}
	})
}

// Parts of any bytes after a reply that announces tensors leave the client its instruction, or a refusal. No more is
// stored than announced.
func FuzzClientMessage(f *testing.F) {
	d := newFuzzed(f)
	announced := &wire.Content{Size: 3 << 9, Sum: wire.Checksum(make([]byte, 3<<9))}
	parts := func(sizes ...int) (b []byte) {
		for _, n := range sizes {
			m := nettest.Marshal(f, &wire.Part{Data: make([]byte, n)})
			b = append(append(b, byte(len(m)>>8), byte(len(m))), m...)
		}
		return b
	}
	for _, sizes := range [][]int{{3 << 9}, {1 << 9, 1 << 10}, {1 << 9}, {4 << 9}, {0}} {
		f.Add(parts(sizes...))
	}
	f.Add(append([]byte{0, 0}, parts(1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, current := d.renew()
		x.most = 1 << 20
		left := bytes.NewBuffer(b)
		next := func() (*wire.Part, error) {
			head := left.Next(2)
			if len(head) < 2 {
				return nil, io.EOF
			}
			var p wire.Part
			err := protobuf.Unmarshal(left.Next(int(head[0])<<8+int(head[1])), &p)
			return &p, err
		}
		var stored bytes.Buffer
		again := bytes.NewBuffer(b)
		announced.ReceiveParts(&stored, func() (*wire.Part, error) {
			defer func() { left, again = again, left }()
			left, again = again, left
			return next()
		})
		if stored.Len() > int(announced.Size) {
			t.Fatalf("%d bytes are stored", stored.Len())
		}
		left = bytes.NewBuffer(b)
		ctx := context.WithValue(context.Background(), responseKey{}, nil)
		r := &wire.Reply{Id: x.Id, Attempt: x.Attempt, Examples: 1, Content: announced}
		err := d.receiveParts(ctx, 0, x, r, next)
		refused := current.failed[0] != ""
		if d.mail.box(0).pending != x && !refused || err == nil != refused || len(current.got) > 0 {
			t.Fatalf("%v, refused: %v", err, refused)
		}
	})
}

// A request of any bytes is admitted only with the terms of the run, a possible backbone and a number of examples.
func FuzzJoin(f *testing.F) {
	d := newFuzzed(f)
	c := wire.JoinRequest{RunSpec: d.set.RunSpec, Backbone: "b", Tokens: "t", Examples: 5}
	c.Participant.Task = methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	c.Participant.Task.Backbone = "toy"
	add := func() {
		b := goldentest.JSON(f, c)
		f.Add(b)
	}
	add()
	text := goldentest.JSON(f, c)
	ask := func(b []byte) error {
		d.change(0, func(m *member) { *m = member{card: &card{}} })
		_, _, err := d.join(0, certs.Peer{Name: "client-0", Proof: proof()}, &wire.JoinCall{Run: d.set.ID,
			Instance: strings.Repeat("cd", 16), Request: b})
		return err
	}
	goldentest.NoError(f, ask(text))
	c.Examples = math.MaxInt
	add()
	c.Participant.Task.Width, c.Participant.Domain = 1<<40, "../../x"
	add()
	f.Fuzz(func(t *testing.T, b []byte) {
		err := ask(b)
		if why := d.counts.tally(0).reason; strings.ContainsFunc(why, func(r rune) bool { return r < ' ' }) ||
			len(why) > wire.MaxText+3 || (err == nil) != (why == "") {
			t.Fatalf("%q", why)
		}
		k := d.members.roster().clients[0]
		if (err == nil) != k.connected || err == nil && !k.joined || k.joined && errors.As(err, new(laterError)) {
			t.Fatalf("%v, %+v", err, k)
		}
		if err == nil && (k.Examples < 1 || !wire.Label.MatchString(k.Participant.Domain) ||
			k.Participant.Task.Width > 1<<16 || d.set.RunSpec.FixedBy(k.RunSpec).Mismatch(k.RunSpec) != nil) {
			t.Fatalf("%+v", k)
		}
	})
}
