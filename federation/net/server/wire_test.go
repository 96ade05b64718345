package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// The tests of this file talk to a server with calls that send any messages.

// room is a server with the experiment of its clients.
type room struct {
	t    testing.TB
	h    *server.Server
	e    *spec.Experiment
	ca   *nettest.Authority
	logs *nettest.Logs
	dir  string
	call map[string]wire.FederationClient // by name
}

// newRoom opens a server with certificates.
func newRoom(t testing.TB, clients int, change ...func(*server.Settings)) *room {
	t.Helper()
	r := &room{t: t, ca: nettest.NewAuthority(t), logs: &nettest.Logs{}, dir: t.TempDir(),
		call: map[string]wire.FederationClient{}, e: nettest.Method("promptfl", nil, nil).Experiment(t)}
	set := server.Settings{Name: "toy", Listen: "127.0.0.1:0", ID: wire.NewID(), Clients: clients,
		Quorum: 1, KeepQuorum: true,
		RunSpec: open(r.e.RunSpec()), Method: r.e.Method, Identity: r.ca.Identity(certs.ServerName),
		Dir: filepath.Join(r.dir, "hub"), Log: r.logs.Logger()}
	for _, f := range change {
		f(&set)
	}
	var err error
	if r.h, err = server.Open(set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.h.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.logs)
		}
	})
	return r
}

// dial returns the connection of a name. The server can send a stream 64 KiB before the stream is read.
func (r *room) dial(name string) wire.FederationClient {
	if r.call[name] == nil {
		r.call[name] = nettest.Dial(r.t, r.h.URL(), name, r.ca.Identity(name), 64<<10)
	}
	return r.call[name]
}

// request returns a request to join that the server admits.
func (r *room) request() wire.JoinRequest {
	task := methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	task.Backbone = "toy"
	return wire.JoinRequest{RunSpec: r.e.RunSpec(), Participant: message.Participant{Task: task}, Examples: 1}
}

// process is a client's process that sends any messages.
type process struct {
	wire.FederationClient
	r        *room
	client   int
	instance string
	seq      int64 // of its newest instruction
}

// process returns a process of a client that has not joined.
func (r *room) process(client int) *process {
	r.t.Helper()
	return &process{FederationClient: r.dial(certs.UserOf(client)), r: r, client: client, instance: wire.NewID()}
}

// ask returns the next instruction with its tensors.
func (p *process) ask(ctx context.Context, has string) (*wire.Instruction, []byte, error) {
	s, err := p.Next(ctx, &wire.Ask{Instance: p.instance, Seq: p.seq, Has: has})
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	if !s.Receive() {
		return nil, nil, cmp.Or(s.Err(), io.EOF)
	}
	o := s.Msg().Instruction
	if o.Content.Inline() || o.Id == has {
		return o, o.Content.Body, nil
	}
	var body bytes.Buffer
	err = o.Content.ReceiveParts(&body, func() (*wire.Part, error) { return wire.Next(s) })
	return o, body.Bytes(), err
}

// next returns the next instruction with its tensors.
func (p *process) next() (*wire.Instruction, []byte) {
	p.r.t.Helper()
	o, body, err := p.ask(busytest.Context(p.r.t), "")
	if err != nil {
		p.r.t.Fatal(err)
	}
	p.seq = o.Seq
	return o, body
}

// answer sends a reply and parts of tensors.
func (p *process) answer(m *wire.Reply, parts ...[]byte) error {
	p.r.t.Helper()
	if m.Instance == "" {
		m.Instance = p.instance
	}
	list := []*wire.Part{{Reply: m}}
	for _, b := range parts {
		list = append(list, &wire.Part{Data: b})
	}
	return p.send(list...)
}

// send makes a call that answers with any parts.
func (p *process) send(parts ...*wire.Part) error {
	s, err := p.Answer(busytest.Context(p.r.t))
	for _, part := range parts {
		if err == nil {
			err = s.Send(part)
		}
	}
	if s == nil {
		return err
	}
	_, err = s.CloseAndReceive()
	return err
}

// pieces divides tensors into parts.
func pieces(body []byte) [][]byte { return slices.Collect(slices.Chunk(body, wire.PartSize)) }

// lose ends the process as a lost connection does.
func (p *process) lose() {
	p.r.t.Helper()
	ctx, cancel := context.WithCancel(busytest.Context(p.r.t))
	go p.ask(ctx, "")
	busytest.Delay(50 * time.Millisecond)
	cancel()
	busytest.Until(p.r.t, "the end of the process", func() bool {
		return p.r.h.Status().Clients[p.client].Doing == ""
	})
}

// leave says that the user stopped the process.
func (p *process) leave() error {
	_, err := p.Leave(busytest.Context(p.r.t), wrapperspb.String(p.instance))
	return err
}

// joinMessage returns a message that requests to join.
func (r *room) joinMessage() *wire.JoinCall {
	r.t.Helper()
	return r.changed(func(*wire.JoinRequest) {})
}

// joins makes a process join.
func (p *process) joins(m *wire.JoinCall) error {
	m.Instance = p.instance
	v, err := p.Join(busytest.Context(p.r.t), m)
	if err == nil && v.Later != "" {
		err = errors.New(v.Later)
	}
	return err
}

// join returns a new process of a client, which joins.
func (r *room) join(client int) *process {
	r.t.Helper()
	p := r.process(client)
	if err := p.joins(r.joinMessage()); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// start starts an instruction to train for all clients, with tensors of so many numbers.
func (r *room) start(round, numbers int) (replies func() []message.Reply) {
	r.t.Helper()
	o := message.Instruction{Kind: message.Train, Round: round, Total: len(r.h.Participants()),
		Shared: tensor.Map{"ctx": tensor.New(numbers)}}
	for i := range o.Shared["ctx"].Data {
		o.Shared["ctx"].Data[i] = float32(i % 1013)
	}
	for k := range o.Total {
		o.Clients = append(o.Clients, k)
	}
	if _, err := r.h.Wait(busytest.Context(r.t), o.Total); err != nil {
		r.t.Fatal(err)
	}
	done := make(chan []message.Reply, 1)
	go func() {
		out, err := r.h.Run(busytest.Context(r.t), o)
		if err != nil {
			r.t.Error(err)
		}
		done <- out
	}()
	busytest.Until(r.t, "the instruction", func() bool {
		return !slices.ContainsFunc(r.h.Status().Clients, func(c wire.ClientStatus) bool { return !c.Asked })
	})
	return func() []message.Reply {
		r.t.Helper()
		select {
		case out := <-done:
			return out
		case <-busytest.Hung(r.t):
			r.t.Fatal("the instruction has no end")
		}
		return nil
	}
}

// replyTo returns a client's reply to an instruction, with the encoded tensors of a value.
func replyTo(t testing.TB, o *wire.Instruction, numbers int, value float32) (*wire.Reply, []byte) {
	t.Helper()
	x := tensor.New(numbers)
	for i := range x.Data {
		x.Data[i] = value
	}
	body := []byte(nettest.BytesOf(t, tensor.Map{"shared/ctx": x}))
	return &wire.Reply{Id: o.Id, Attempt: o.Attempt, Examples: 1, Loss: 1, Steps: 1,
		Content: wire.ContentOf(body)}, body
}

// A reply counts once if it comes several times, whole or damaged, and replies to other instructions never count, among
// them those to the same instruction of another run or client. The server acknowledges all of them, so that an honest
// client has an end.
func TestRepeatedReplies(t *testing.T) {
	r := newRoom(t, 1)
	s := r.join(0)
	replies := r.start(0, 4)
	o, _ := s.next()
	ours, body := replyTo(t, o, 4, 3)
	ours.Content.Body = body
	other, _ := replyTo(t, o, 4, 4)
	first, _ := replyTo(t, o, 4, 4)
	otherClient := protobuf.CloneOf(o)
	otherClient.Client = 1 // whose identity this client can compute
	first.Id = wire.IdentityOf(otherClient)
	otherRun := protobuf.CloneOf(o)
	otherRun.Run = wire.NewID()
	other.Id = wire.IdentityOf(otherRun)
	damaged, wrong := replyTo(t, o, 4, 5)
	damaged.Content.Body = slices.Clone(wrong)
	damaged.Content.Body[len(wrong)-1] ^= 0x40
	for _, m := range []*wire.Reply{first, other, ours, ours, damaged, ours} {
		if err := s.answer(m); err != nil {
			t.Error(err)
		}
	}
	out := replies()
	if len(out) != 1 || out[0].Upload.Shared["ctx"].Data[0] != 3 {
		t.Errorf("%+v", out)
	}
	if got := r.h.Totals(); got.Late != 5 || got.Replies != 1 || got.Refused != 0 {
		t.Errorf("%+v", got)
	}
	if k := r.h.Status().Clients[0]; k.Replies != 1 {
		t.Errorf("%+v", k)
	}
}

// A server that cannot write its files, as on a full disk, refuses no client for it: a request to join and a reply that
// come again count.
func TestFullDisk(t *testing.T) {
	r := newRoom(t, 1)
	without := func(folder string, call func() error) {
		t.Helper()
		at := filepath.Join(r.dir, "hub", folder)
		err := os.Rename(at, at+"-away")
		if err == nil {
			if err := call(); connect.CodeOf(err) != connect.CodeUnavailable || strings.Contains(err.Error(), r.dir) {
				t.Errorf("without %s: %v", folder, err)
			}
			err = os.Rename(at+"-away", at)
		}
		if err == nil {
			err = call()
		}
		if err != nil {
			t.Fatalf("with %s: %v", folder, err)
		}
	}
	s := r.process(0)
	without("members", func() error { return s.joins(r.joinMessage()) })
	const numbers = 100_000 // more than Limit
	replies := r.start(0, numbers)
	o, _ := s.next()
	m, body := replyTo(t, o, numbers, 3)
	without("pieces", func() error { return s.answer(m, pieces(body)...) })
	if out := replies(); len(out) != 1 {
		t.Errorf("%+v", out)
	}
	if got := r.h.Totals(); got.Refused != 0 || got.RefusedJoins != 0 || got.Replies != 1 {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(r.logs.String(), "cannot read or write a file") {
		t.Error("the log does not tell it")
	}
}

// A reply that no client sends, or that lies about its tensors, is refused with the reason. The round has the replies
// of the other clients.
func TestLyingReplies(t *testing.T) {
	large := strings.Repeat("x", wire.MaxScores+1)
	for say, lie := range map[string]func(m *wire.Reply){
		"the tensors are damaged": func(m *wire.Reply) { m.Content.Body[len(m.Content.Body)-1] ^= 1 },
		"bytes of tensors; at most": func(m *wire.Reply) {
			m.Content.Body, m.Content.Size = nil, 1<<30
		},
		"description of the tensors is invalid: 1": func(m *wire.Reply) { m.Content.Size = 1<<40 + 1 },
		"checksum \"../x\"":                        func(m *wire.Reply) { m.Content.Sum = "../x" },
		"description of the tensors is invalid: 0": func(m *wire.Reply) { m.Content = nil },
		"invalid counts: -1 examples":              func(m *wire.Reply) { m.Examples = -1 },
		"invalid counts: 9223372036854775807":      func(m *wire.Reply) { m.Examples = math.MaxInt64 },
		"loss NaN is invalid":                      func(m *wire.Reply) { m.Loss = math.NaN() },
		"-5 steps":                                 func(m *wire.Reply) { m.Steps = -5 },
		"bytes of statistics":                      func(m *wire.Reply) { m.Scores = []byte(large) },
		"the statistics of the test":               func(m *wire.Reply) { m.Scores = []byte(`{"x":1}`) },
		"is not an identity":                       func(m *wire.Reply) { m.Attempt = "\x1b[2J" },
		"out of  [2Jmemory":                        func(m *wire.Reply) { m.Error = "out of \x1b[2Jmemory" },
	} {
		t.Run(say, func(t *testing.T) {
			r := newRoom(t, 2, func(s *server.Settings) { s.Quorum = 0.5 })
			liar, honest := r.join(0), r.join(1)
			replies := r.start(0, 4)
			for p, value := range map[*process]float32{liar: 2, honest: 3} {
				o, _ := p.next()
				m, body := replyTo(t, o, 4, value)
				if m.Content.Body = body; p == liar {
					lie(m)
				}
				if err := p.answer(m); err != nil {
					t.Error(err)
				}
			}
			out := replies()
			if len(out) != 1 || out[0].Client != 1 {
				t.Errorf("%+v", out)
			}
			if got := r.h.Totals(); got.Refused != 1 || got.Replies != 1 {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(r.logs.String(), strings.ReplaceAll(say, `"`, `\"`)) {
				t.Errorf("the log does not name %q", say)
			}
		})
	}
}

// Messages that no client sends at their place are refused with the reason, and a process that has not joined gets and
// sends nothing. The other clients do not notice.
func TestMessagesOutOfPlace(t *testing.T) {
	r := newRoom(t, 2, func(s *server.Settings) { s.Limit = 1 << 10 })
	join := func(change func(j *wire.JoinCall)) *wire.JoinCall {
		j := r.joinMessage()
		change(j)
		return j
	}
	for say, j := range map[string]*wire.JoinCall{
		"started another run":   join(func(j *wire.JoinCall) { j.Run = wire.NewID() }),
		"is not an identity":    join(func(j *wire.JoinCall) { j.Instance = "../x" }),
		"invalid character":     join(func(j *wire.JoinCall) { j.Request = []byte("x") }),
		"unknown object member": join(func(j *wire.JoinCall) { j.Request = []byte(`{"x":1}`) }),
		"message size":          join(func(j *wire.JoinCall) { j.Request = make([]byte, 8<<20) }),
		"0 classes are too few": r.changed(func(c *wire.JoinRequest) { c.RunSpec.Classes = nil }),
		"0 examples to train":   r.changed(func(c *wire.JoinRequest) { c.Examples = 0 }),
		"the backbone's name \"a\\x1b\"": r.changed(func(c *wire.JoinRequest) {
			c.Participant.Task.Backbone = "a\x1b"
		}),
		"the backbone has impossible size": r.changed(func(c *wire.JoinRequest) { c.Participant.Task.Width = 1 << 30 }),
	} {
		_, err := r.dial("client-0").Join(busytest.Context(t), j)
		goldentest.WantError(t, err, say)
	}
	early := r.process(0)
	_, _, err := early.ask(busytest.Context(t), "")
	for _, err := range []error{err, early.answer(&wire.Reply{Id: wire.NewID(), Attempt: wire.NewID()})} {
		if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "has not joined") {
			t.Error(err)
		}
	}
	if err := early.leave(); err != nil || r.h.Status().Clients[0].Left {
		t.Errorf("%v, or a process that has not joined leaves", err)
	}
	liar, honest := r.join(0), r.join(1)
	replies := r.start(0, 40000)
	ours, _ := liar.next()
	theirs, _ := honest.next()
	m, body := replyTo(t, ours, 40000, 2)
	for _, parts := range [][]*wire.Part{{{Data: body[:10]}}, {{}}, {{Instruction: ours}}} {
		if err := liar.send(parts...); connect.CodeOf(err) != connect.CodeInvalidArgument ||
			!strings.Contains(err.Error(), "the first part must be a reply") {
			t.Error(err)
		}
	}
	for _, parts := range [][][]byte{nil, {body[:wire.PartSize]}} { // an end that is too early counts for nothing
		if err := liar.answer(m, parts...); err == nil {
			t.Errorf("%d parts of 3 are received", len(parts))
		}
	}
	if err := errors.Join(liar.answer(m, pieces(body)...), liar.answer(m, pieces(body)...)); err != nil {
		t.Error(err) // once, and late
	}
	m, body = replyTo(t, theirs, 40000, 3)
	if err := honest.answer(m, pieces(body)...); err != nil {
		t.Error(err)
	}
	out := replies()
	if len(out) != 2 || out[0].Upload.Shared["ctx"].Data[39999] != 2 || out[1].Upload.Shared["ctx"].Data[39999] != 3 {
		t.Fatalf("%d replies", len(out))
	}
	if got := r.h.Totals(); got.Dropped != 3 || got.Refused != 0 || got.Late != 1 {
		t.Errorf("%+v", got)
	}
}

// A reply whose parts are not those of its header is refused: one part that is too large, empty, of other tensors, or
// more than announced.
func TestLyingParts(t *testing.T) {
	for say, lie := range map[string]func(body []byte) [][]byte{
		"a part of 65537 bytes": func(b []byte) [][]byte { return [][]byte{b[:wire.PartSize+1]} },
		"a part of 0 bytes":     func(b []byte) [][]byte { return [][]byte{b[:10], nil} },
		"another checksum": func(b []byte) [][]byte {
			b[len(b)-1] ^= 1
			return pieces(b)
		},
		"are missing": func(b []byte) [][]byte { return pieces(append(slices.Clone(b), 0)) },
	} {
		t.Run(say, func(t *testing.T) {
			r := newRoom(t, 1, func(s *server.Settings) { s.Limit, s.Quorum, s.KeepQuorum = 1<<10, 0.5, false })
			p := r.join(0)
			replies := r.start(0, 40000)
			o, _ := p.next()
			m, body := replyTo(t, o, 40000, 2)
			if err := p.answer(m, lie(body)...); err != nil {
				t.Error(err)
			}
			if out := replies(); len(out) != 0 || !strings.Contains(r.logs.String(), say) {
				t.Errorf("%d replies, or the log does not name %q", len(out), say)
			}
			if got := r.h.Totals(); got.Refused != 1 || got.Replies != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// changed returns a message that requests to join with a change.
func (r *room) changed(change func(c *wire.JoinRequest)) *wire.JoinCall {
	r.t.Helper()
	c := r.request()
	change(&c)
	text, err := json.Marshal(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return &wire.JoinCall{Run: r.h.Status().Run, Instance: wire.NewID(), Request: text}
}

// Clients that read nothing do not hold up the others, and the server holds no tensors in memory for them: what they
// wait for is that of the others, and is gone a moment after the instruction.
func TestClientsThatReadNothing(t *testing.T) {
	const silent, numbers = 12, 2 << 20 // 8 MiB
	r := newRoom(t, silent+1, func(s *server.Settings) { s.Quorum, s.Deadline = 1.0/(silent+1), 0 })
	honest := r.join(silent)
	var others []*process
	for k := range silent {
		others = append(others, r.join(k))
	}
	var before, after runtime.MemStats
	replies := r.start(0, numbers)
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	for _, p := range others {
		s, err := p.Next(ctx, &wire.Ask{Instance: p.instance})
		if err != nil || !s.Receive() {
			t.Fatal(err, s.Err())
		}
	}
	o, body := honest.next()
	if wire.Checksum(body) != o.Content.Sum {
		t.Error("the tensors are others")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// what is in use grows by a window of each, and with tensors for each by 96 MiB
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc) - int64(cap(body)); grown > silent<<20 {
		t.Errorf("the memory grew by %d bytes for %d clients that read nothing", grown, silent)
	}
	m, _ := replyTo(t, o, 1, 1)
	m.Error = "no"
	if err := honest.answer(m); err != nil {
		t.Error(err)
	}
	for _, p := range others[1:] {
		if err := p.leave(); err != nil {
			t.Error(err)
		}
	}
	o, _ = others[0].next() // another call in place of the one that is not read
	m, b := replyTo(t, o, numbers, 1)
	if err := others[0].answer(m, pieces(b)...); err != nil {
		t.Error(err)
	}
	if out := replies(); len(out) != 1 {
		t.Error(len(out))
	}
}

// A process has one call for an instruction and one for a reply at a time: the newest.
func TestNewestCall(t *testing.T) {
	r := newRoom(t, 1)
	p := r.join(0)
	first := make(chan error, 1)
	go func() {
		_, _, err := p.ask(busytest.Context(t), "")
		first <- err
	}()
	second := make(chan *wire.Instruction, 1)
	busytest.Until(t, "the end of the first call", func() bool {
		go func() {
			if o, _, err := p.ask(busytest.Context(t), ""); err == nil {
				second <- o
			}
		}()
		busytest.Delay(10 * time.Millisecond)
		return len(first) > 0
	})
	if err := <-first; connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "another call") {
		t.Error(err)
	}
	replies := r.start(0, 4)
	o := <-second
	m, body := replyTo(t, o, 4, 1)
	m.Content.Body = body
	if err := p.answer(m); err != nil || len(replies()) != 1 {
		t.Error(err)
	}
}

// A process that has the tensors of an instruction gets the instruction without them.
func TestTensorsComeOnce(t *testing.T) {
	r := newRoom(t, 1, func(s *server.Settings) { s.Limit = 1 << 10 })
	p := r.join(0)
	replies := r.start(0, 40000)
	o, body := p.next()
	p.seq = 0
	again, none, err := p.ask(busytest.Context(t), o.Id)
	if err != nil || again.Id != o.Id || len(none) > 0 || len(body) == 0 {
		t.Errorf("%v, %d bytes, %v", again, len(none), err)
	}
	m, up := replyTo(t, o, 40000, 1)
	if err := p.answer(m, pieces(up)...); err != nil || len(replies()) != 1 {
		t.Error(err)
	}
	if down := r.h.Totals().BytesDown; down > int64(len(body))*11/10 {
		t.Errorf("%d bytes were sent, of %d", down, len(body))
	}
}

// The server spends a limited number of answers on a client that floods it with invitations, requests to join, calls
// for instructions and leaves. The rounds of the others go on, at the latest when the deadline of the flooding client
// is over.
func TestFloods(t *testing.T) {
	r := newRoom(t, 2, func(s *server.Settings) { s.Quorum, s.Limit, s.Deadline = 0.5, 1<<10, time.Second })
	honest, liar := r.join(1), r.join(0)
	goldentest.NoError(t, liar.leave())
	round := func(n int) {
		replies := r.start(n, 40000+n)
		o, _ := honest.next()
		m, body := replyTo(t, o, 40000+n, 1)
		if err := honest.answer(m, pieces(body)...); err != nil {
			t.Error(err)
		}
		if len(replies()) != 1 {
			t.Error("the honest client's reply does not count")
		}
	}
	round(0)
	ctx, stop := context.WithCancel(busytest.Context(t))
	defer stop()
	go func() {
		for ctx.Err() == nil {
			liar.joins(r.joinMessage())
			for range 20 {
				wait, cancel := context.WithCancel(ctx)
				go liar.ask(wait, "")
				busytest.Delay(5 * time.Millisecond)
				cancel()
			}
			liar.leave()
		}
	}()
	most := rate.NewLimiter(3, 25) // two a second after the first twenty, as each is answered after the one before
	var answered, beyond atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, err := r.dial("client-0").Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
			if err == nil {
				answered.Add(1)
				if !most.Allow() {
					beyond.Add(1)
				}
			}
		}
	}()
	busytest.Until(t, "the flood", func() bool { return answered.Load() > 2 })
	for n := range 3 {
		round(1 + n)
	}
	stop()
	if <-ended; beyond.Load() > 0 {
		t.Errorf("of %d invitations under a flood, %d were answered too early", answered.Load(), beyond.Load())
	}
}

// half sends a part of a message of 4 MiB on a connection of its own. Its status comes at the end of the call.
func (r *room) half(ctx context.Context, who certs.Identity, path string, ended chan<- string) {
	r.t.Helper()
	own := nettest.Transport(r.t, "client-0", who, 64<<10)
	in, out := io.Pipe()
	q, err := http.NewRequestWithContext(ctx, "POST", r.h.URL()+path, in)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/grpc")
	go out.Write(append([]byte{0, 0, 0x40, 0, 0}, make([]byte, 16<<10)...))
	go func() {
		status := "none"
		if a, err := own.RoundTrip(q); err == nil {
			io.Copy(io.Discard, a.Body)
			status = a.Header.Get("Grpc-Status") + a.Trailer.Get("Grpc-Status")
		}
		ended <- status
	}()
}

// A client may leave four messages open, on all its connections, which bounds the server's memory: further calls are
// refused before they are read. Another client does not notice. A call that ends makes room.
func TestOpenMessages(t *testing.T) {
	r := newRoom(t, 2)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	ended := make(chan string, 6)
	for range 3 { // a user has eight connections
		r.half(ctx, r.ca.Identity("client-0"), wire.FederationAnswerProcedure, ended)
		r.half(ctx, r.ca.Identity("client-0"), wire.FederationJoinProcedure, ended)
	}
	for range 2 {
		if status := <-ended; status != "14" { // unavailable
			t.Errorf("a call ends with the status %s", status)
		}
	}
	r.join(1)
	if len(ended) > 0 {
		t.Error("fewer than four messages stay open")
	}
	cancel()
	busytest.Until(t, "client 0", func() bool { return r.process(0).joins(r.joinMessage()) == nil })
}

// A status certificate may ask for the status and nothing else; clients may not ask for the status.
func TestCallsOfNames(t *testing.T) {
	r := newRoom(t, 1)
	ctx := busytest.Context(t)
	status := r.dial(certs.StatusUser)
	if _, err := status.Status(ctx, &emptypb.Empty{}); err != nil {
		t.Error(err)
	}
	_, err := status.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
	_, err = status.Join(ctx, r.joinMessage())
	if connect.CodeOf(err) != connect.CodePermissionDenied ||
		!strings.Contains(err.Error(), `"status" is not a client`) {
		t.Error(err)
	}
	client := r.dial("client-0")
	if _, err := client.Status(ctx, &emptypb.Empty{}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
	long := make([]byte, 64<<10) // an unknown field
	m := &wire.InvitationRequest{Version: wire.Version}
	m.ProtoReflect().SetUnknown(append([]byte{0x12, 0x80, 0x80, 0x04}, long...))
	if _, err := client.Invite(ctx, m); err == nil {
		t.Error("a request of 64 KiB for the invitation is answered")
	}
	if _, err := client.Invite(ctx, &wire.InvitationRequest{Version: wire.Version}); err != nil {
		t.Error(err)
	}
}
