package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/protocol"
	"promptfed/federation/net/remote"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// The tests of this file talk to a server with streams that send any messages.

// room is a server with the experiment of its clients.
type room struct {
	t    testing.TB
	h    *remote.Server
	e    *spec.Experiment
	ca   *nettest.Authority
	logs *nettest.Logs
	dir  string
	call map[string]protocol.FederationClient // by name
}

// newRoom opens a server with certificates.
func newRoom(t testing.TB, clients int, change ...func(*remote.Settings)) *room {
	t.Helper()
	r := &room{t: t, ca: nettest.NewAuthority(t), logs: &nettest.Logs{}, dir: t.TempDir(),
		call: map[string]protocol.FederationClient{}, e: nettest.Method("promptfl", nil, nil).Experiment(t)}
	set := remote.Settings{Name: "toy", Listen: "127.0.0.1:0", ID: protocol.NewID(), Clients: clients,
		Quorum: 1, KeepQuorum: true,
		RunSpec: open(r.e.RunSpec()), Method: r.e.Method, Identity: r.ca.Identity(certs.ServerName),
		Dir: filepath.Join(r.dir, "hub"), Log: r.logs.Logger()}
	for _, f := range change {
		f(&set)
	}
	var err error
	if r.h, err = remote.Open(set); err != nil {
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
func (r *room) dial(name string) protocol.FederationClient {
	if r.call[name] == nil {
		r.call[name] = nettest.Dial(r.t, r.h.URL(), name, r.ca.Identity(name), 64<<10)
	}
	return r.call[name]
}

// request returns a request to join that the server admits.
func (r *room) request() protocol.JoinRequest {
	task := methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	task.Backbone = "toy"
	return protocol.JoinRequest{RunSpec: r.e.RunSpec(), Participant: message.Participant{Task: task}, Examples: 1}
}

// stream is a stream of a client that sends any messages.
type stream struct {
	*connect.BidiStreamForClientSimple[protocol.ClientMessage, protocol.ServerMessage]
	t      testing.TB
	in     chan *protocol.ServerMessage
	ended  chan error
	cancel func()
}

// open opens a stream as a client, whose messages are read if reads.
func (r *room) open(client int, reads bool) *stream {
	r.t.Helper()
	ctx, cancel := context.WithCancel(busytest.Context(r.t))
	r.t.Cleanup(cancel)
	s, err := r.dial(certs.UserOf(client)).Participate(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	out := &stream{s, r.t, make(chan *protocol.ServerMessage, 1<<16), make(chan error, 1), cancel}
	if reads {
		go out.receive(-1)
	}
	return out
}

// receive reads so many messages, or all if n is negative.
func (s *stream) receive(n int) {
	for ; n != 0; n-- {
		m, err := s.Receive()
		if err != nil {
			s.ended <- err
			return
		}
		s.in <- m
	}
}

// next returns the next message of a kind. Other messages are errors, except for receipts.
func next[T any](s *stream, get func(*protocol.ServerMessage) *T) *T {
	s.t.Helper()
	for {
		select {
		case m := <-s.in:
			if v := get(m); v != nil {
				return v
			}
			if m.GetReceipt() == nil {
				s.t.Fatalf("the server sent %v", m)
			}
		case err := <-s.ended:
			s.t.Fatalf("the stream ended: %v", err)
		case <-busytest.Hung(s.t):
			s.t.Fatal("there is no message")
		}
	}
}

// end waits for the end of the stream and returns its reason.
func (s *stream) end() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-busytest.Hung(s.t):
		s.t.Fatal("the stream does not end")
	}
	return nil
}

func (s *stream) sendJoin(m *protocol.Join) {
	s.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Join{Join: m}})
}

func (s *stream) sendReply(m *protocol.Reply) {
	s.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Reply{Reply: m}})
}

func (s *stream) sendChunk(sum string, offset uint64, data []byte) {
	s.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Chunk{Chunk: &protocol.Chunk{Sum: sum, Offset: offset,
		Data: data}}})
}

// sendChunks sends the tensors of a reply.
func (s *stream) sendChunks(m *protocol.Reply, body []byte) {
	for at := 0; at < len(body); at += 64 << 10 {
		s.sendChunk(m.Content.Sum, uint64(at), body[at:min(at+64<<10, len(body))])
	}
}

// upload sends a reply and then its tensors in chunks.
func (s *stream) upload(m *protocol.Reply, body []byte) {
	s.t.Helper()
	s.sendReply(m)
	if f := next(s, (*protocol.ServerMessage).GetFetch); f.Offset != 0 || f.Sum != m.Content.Sum {
		s.t.Errorf("%+v", f)
	}
	s.sendChunks(m, body)
}

func (s *stream) sendFetch(sum string, offset uint64) {
	s.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Fetch{Fetch: &protocol.Fetch{Sum: sum,
		Offset: offset}}})
}

func (s *stream) leave() {
	s.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Leave{Leave: &protocol.Leave{}}})
}

// joinMessage returns a message that requests to join.
func (r *room) joinMessage() *protocol.Join {
	r.t.Helper()
	text, err := json.Marshal(r.request())
	if err != nil {
		r.t.Fatal(err)
	}
	return &protocol.Join{Run: r.h.Status().Run, Instance: protocol.NewID(), Request: text}
}

// join opens a stream as a client and joins. The stream reads all messages, or only the answer.
func (r *room) join(client int, reads bool) *stream {
	r.t.Helper()
	s := r.open(client, reads)
	s.sendJoin(r.joinMessage())
	if !reads {
		s.receive(1)
	}
	if v := next(s, (*protocol.ServerMessage).GetAnswer); !v.Ok {
		r.t.Fatal(v)
	}
	return s
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
		return !slices.ContainsFunc(r.h.Status().Clients, func(c remote.ClientStatus) bool { return !c.Asked })
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
func replyTo(t testing.TB, o *protocol.Instruction, numbers int, value float32) (*protocol.Reply, []byte) {
	t.Helper()
	x := tensor.New(numbers)
	for i := range x.Data {
		x.Data[i] = value
	}
	body, err := message.EncodeTensors(tensor.Map{"shared/ctx": x})
	if err != nil {
		t.Fatal(err)
	}
	return &protocol.Reply{Id: o.Id, Attempt: o.Attempt, Examples: 1, Loss: 1, Steps: 1,
		Content: protocol.ContentOf(body)}, body
}

// A reply counts once if it comes several times, whole or damaged, and replies to other instructions never count. The
// server acknowledges all of them, so that an honest client has an end.
func TestRepeatedReplies(t *testing.T) {
	r := newRoom(t, 1)
	s := r.join(0, true)
	replies := r.start(0, 4)
	o := next(s, (*protocol.ServerMessage).GetInstruction)
	ours, body := replyTo(t, o, 4, 3)
	ours.Content.Body = body
	other, _ := replyTo(t, o, 4, 4)
	other.Id = protocol.NewID()
	damaged, wrong := replyTo(t, o, 4, 5)
	damaged.Content.Body = slices.Clone(wrong)
	damaged.Content.Body[len(wrong)-1] ^= 0x40
	for _, m := range []*protocol.Reply{other, ours, ours, damaged, ours} {
		s.sendReply(m)
	}
	out := replies()
	if len(out) != 1 || out[0].Upload.Shared["ctx"].Data[0] != 3 {
		t.Errorf("%+v", out)
	}
	for range 5 {
		next(s, (*protocol.ServerMessage).GetReceipt)
	}
	if got := r.h.Totals(); got.Late != 4 || got.Replies != 1 || got.Refused != 0 {
		t.Errorf("%+v", got)
	}
	if k := r.h.Status().Clients[0]; k.Replies != 1 {
		t.Errorf("%+v", k)
	}
}

// A reply that no client sends, or that lies about its tensors, is refused with the reason. The round has the replies
// of the other clients.
func TestLyingReplies(t *testing.T) {
	large := strings.Repeat("x", protocol.MaxScores+1)
	for say, lie := range map[string]func(m *protocol.Reply){
		"the tensors are damaged": func(m *protocol.Reply) { m.Content.Body[len(m.Content.Body)-1] ^= 1 },
		"bytes of tensors; at most": func(m *protocol.Reply) {
			m.Content.Body, m.Content.Size = nil, 1<<30
		},
		"description of the tensors is invalid: 1": func(m *protocol.Reply) { m.Content.Size = 1<<40 + 1 },
		"checksum \"../x\"":                        func(m *protocol.Reply) { m.Content.Sum = "../x" },
		"description of the tensors is invalid: 0": func(m *protocol.Reply) { m.Content = nil },
		"invalid counts: -1 examples":              func(m *protocol.Reply) { m.Examples = -1 },
		"invalid counts: 9223372036854775807":      func(m *protocol.Reply) { m.Examples = math.MaxInt64 },
		"loss NaN is invalid":                      func(m *protocol.Reply) { m.Loss = math.NaN() },
		"-5 steps":                                 func(m *protocol.Reply) { m.Steps = -5 },
		"bytes of statistics":                      func(m *protocol.Reply) { m.Scores = []byte(large) },
		"the statistics of the test":               func(m *protocol.Reply) { m.Scores = []byte(`{"x":1}`) },
		"is not an identity":                       func(m *protocol.Reply) { m.Attempt = "\x1b[2J" },
		"out of  [2Jmemory":                        func(m *protocol.Reply) { m.Error = "out of \x1b[2Jmemory" },
	} {
		t.Run(say, func(t *testing.T) {
			r := newRoom(t, 2, func(s *remote.Settings) { s.Quorum = 0.5 })
			liar, honest := r.join(0, true), r.join(1, true)
			replies := r.start(0, 4)
			m, body := replyTo(t, next(liar, (*protocol.ServerMessage).GetInstruction), 4, 2)
			m.Content.Body = body
			lie(m)
			liar.sendReply(m)
			next(liar, (*protocol.ServerMessage).GetReceipt)
			m, body = replyTo(t, next(honest, (*protocol.ServerMessage).GetInstruction), 4, 3)
			m.Content.Body = body
			honest.sendReply(m)
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

// Messages that no client sends at their place are dropped and counted, and a message before Join or an invalid Join
// ends the stream with the reason. The other clients do not notice.
func TestMessagesOutOfPlace(t *testing.T) {
	r := newRoom(t, 2, func(s *remote.Settings) { s.Limit = 1 << 10 })
	join := func(change func(j *protocol.Join)) func(s *stream) {
		return func(s *stream) {
			j := r.joinMessage()
			change(j)
			s.sendJoin(j)
		}
	}
	request := func(change func(c *protocol.JoinRequest)) func(s *stream) {
		return func(s *stream) { s.sendJoin(r.changed(change)) }
	}
	for say, send := range map[string]func(s *stream){
		"the first message must be Join": func(s *stream) { s.sendFetch(protocol.Checksum(nil), 0) },
		"started another run":            join(func(j *protocol.Join) { j.Run = protocol.NewID() }),
		"is not an identity":             join(func(j *protocol.Join) { j.Instance = "../x" }),
		"invalid character":              join(func(j *protocol.Join) { j.Request = []byte("x") }),
		"unknown field":                  join(func(j *protocol.Join) { j.Request = []byte(`{"x":1}`) }),
		"message size":                   join(func(j *protocol.Join) { j.Request = make([]byte, 8<<20) }),
		"0 classes are too few":          request(func(c *protocol.JoinRequest) { c.RunSpec.Classes = nil }),
		"0 examples to train on":         request(func(c *protocol.JoinRequest) { c.Examples = 0 }),
		"the backbone's name \"a\\x1b\"": request(func(c *protocol.JoinRequest) {
			c.Participant.Task.Backbone = "a\x1b"
		}),
		"the backbone has impossible size": request(func(c *protocol.JoinRequest) {
			c.Participant.Task.Width = 1 << 30
		}),
	} {
		s := r.open(0, true)
		send(s)
		if err := s.end(); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: the stream ended with %v", say, err)
		}
	}
	liar, honest := r.join(0, true), r.join(1, true)
	sum := protocol.Checksum([]byte("x"))
	liar.sendFetch(sum, 0) // there is no instruction yet
	liar.sendFetch(sum, math.MaxUint64)
	replies := r.start(0, 40000)
	ours, theirs := next(liar, (*protocol.ServerMessage).GetInstruction),
		next(honest, (*protocol.ServerMessage).GetInstruction)
	liar.sendFetch(ours.Content.Sum, math.MaxUint64)
	liar.sendFetch(ours.Content.Sum, ours.Content.Size+1)
	liar.sendJoin(r.joinMessage())
	liar.Send(&protocol.ClientMessage{})
	m, body := replyTo(t, ours, 40000, 2)
	liar.sendChunk(m.Content.Sum, 0, body[:64<<10]) // before the reply
	liar.sendReply(m)
	if f := next(liar, (*protocol.ServerMessage).GetFetch); f.Offset != 0 || f.Sum != m.Content.Sum {
		t.Errorf("%+v", f)
	}
	liar.sendChunk(sum, 0, body[:64<<10])                    // of other tensors
	liar.sendChunk(m.Content.Sum, 1, body[:64<<10])          // at another offset
	liar.sendChunk(m.Content.Sum, 0, body[:64<<10+1])        // too large
	liar.sendChunk(m.Content.Sum, math.MaxUint64, body[:10]) // far beyond the end
	liar.sendChunk(m.Content.Sum, 0, body[:64<<10])
	liar.sendChunk(m.Content.Sum, 64<<10, body[64<<10:128<<10])
	liar.sendChunk(m.Content.Sum, 128<<10, append(slices.Clone(body[128<<10:]), 0)) // beyond the end
	liar.sendChunk(m.Content.Sum, 128<<10, body[128<<10:])
	next(liar, (*protocol.ServerMessage).GetReceipt)
	liar.sendChunks(m, body) // again, after the end
	m, body = replyTo(t, theirs, 40000, 3)
	honest.upload(m, body)
	out := replies()
	if len(out) != 2 || out[0].Upload.Shared["ctx"].Data[39999] != 2 || out[1].Upload.Shared["ctx"].Data[39999] != 3 {
		t.Fatalf("%d replies", len(out))
	}
	if got := r.h.Totals(); got.Dropped != 6 || got.Refused != 0 {
		t.Errorf("%+v", got)
	}
}

// changed returns a message that requests to join with a change.
func (r *room) changed(change func(c *protocol.JoinRequest)) *protocol.Join {
	r.t.Helper()
	c := r.request()
	change(&c)
	text, err := json.Marshal(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return &protocol.Join{Run: r.h.Status().Run, Instance: protocol.NewID(), Request: text}
}

// Clients that read nothing do not hold up the others, and the server holds no tensors in memory for them. A client
// that leaves its receipts unread loses its stream.
func TestClientsThatReadNothing(t *testing.T) {
	const silent, numbers = 12, 2 << 20 // 8 MiB
	r := newRoom(t, silent+1, func(s *remote.Settings) { s.Quorum, s.Deadline = 1.0/(silent+1), 0 })
	honest := r.join(silent, true)
	var others []*stream
	for k := range silent {
		others = append(others, r.join(k, false))
	}
	var before, after runtime.MemStats
	replies := r.start(0, numbers)
	o := next(honest, (*protocol.ServerMessage).GetInstruction)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, s := range others {
		s.sendFetch(o.Content.Sum, 0)
	}
	honest.sendFetch(o.Content.Sum, 0)
	var got bytes.Buffer
	for uint64(got.Len()) < o.Content.Size {
		got.Write(next(honest, (*protocol.ServerMessage).GetChunk).Data)
	}
	if protocol.Checksum(got.Bytes()) != o.Content.Sum {
		t.Error("the chunks are others")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// what is in use grows by a window of each, and with tensors for each by 96 MiB
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc) - int64(got.Cap()); grown > silent<<20 {
		t.Errorf("the memory grew by %d bytes for %d clients that read nothing", grown, silent)
	}
	m, _ := replyTo(t, o, 1, 1)
	m.Error = "no"
	honest.sendReply(m)
	for range 100 {
		others[0].sendReply(&protocol.Reply{Id: protocol.NewID(), Attempt: protocol.NewID()})
	}
	busytest.Until(t, "the end of the stream", func() bool { return r.h.Status().Clients[0].Doing == "" })
	for _, s := range others[1:] {
		s.leave()
	}
	delete(r.call, certs.UserOf(0)) // the server closed this connection
	others[0] = r.join(0, true)
	m, b := replyTo(t, next(others[0], (*protocol.ServerMessage).GetInstruction), numbers, 1)
	others[0].upload(m, b)
	if out := replies(); len(out) != 1 {
		t.Error(len(out))
	}
}

// The server spends a limited number of answers on a client that floods it with invitations, requests to join, fetches
// and leaves. The rounds of the others go on, at the latest when the deadline of the flooding client is over.
func TestFloods(t *testing.T) {
	r := newRoom(t, 2, func(s *remote.Settings) { s.Quorum, s.Limit, s.Deadline = 0.5, 1<<10, time.Second })
	honest, liar := r.join(1, true), r.join(0, true)
	leave := func() {
		liar.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Leave{Leave: &protocol.Leave{}}})
	}
	leave()
	round := func(n int) {
		replies := r.start(n, 40000+n)
		honest.upload(replyTo(t, next(honest, (*protocol.ServerMessage).GetInstruction), 40000+n, 1))
		if len(replies()) != 1 {
			t.Error("the honest client's reply does not count")
		}
	}
	round(0)
	ctx, stop := context.WithCancel(busytest.Context(t))
	defer stop()
	go func() {
		for sum := ""; ctx.Err() == nil; {
			for len(liar.in) > 0 {
				if o := (<-liar.in).GetInstruction(); o != nil {
					sum = o.Content.Sum
				}
			}
			liar.sendFetch(sum, 0)
			liar.leave()
		}
	}()
	most := rate.NewLimiter(3, 25) // two a second after the first twenty, as each is answered after the one before
	var answered, beyond atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		call := r.dial("client-0")
		for ctx.Err() == nil {
			if _, err := call.Invite(ctx, &protocol.InvitationRequest{Version: protocol.Version}); err == nil {
				answered.Add(1)
				if !most.Allow() {
					beyond.Add(1)
				}
			}
			if s, err := call.Participate(ctx); err == nil {
				s.Send(&protocol.ClientMessage{Kind: &protocol.ClientMessage_Join{Join: r.joinMessage()}})
				s.CloseRequest()
				s.CloseResponse()
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

// A status certificate may ask for the status and nothing else; clients may not ask for the status.
func TestCallsOfNames(t *testing.T) {
	r := newRoom(t, 1)
	ctx := busytest.Context(t)
	status := r.dial(certs.StatusUser)
	if _, err := status.Status(ctx, &protocol.StatusRequest{}); err != nil {
		t.Error(err)
	}
	_, err := status.Invite(ctx, &protocol.InvitationRequest{Version: protocol.Version})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
	s, err := status.Participate(ctx)
	if err == nil {
		_, err = s.Receive()
	}
	if connect.CodeOf(err) != connect.CodePermissionDenied ||
		!strings.Contains(err.Error(), `"status" is not a client`) {
		t.Error(err)
	}
	client := r.dial("client-0")
	if _, err := client.Status(ctx, &protocol.StatusRequest{}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Error(err)
	}
	long := make([]byte, 64<<10) // an unknown field
	m := &protocol.InvitationRequest{Version: protocol.Version}
	m.ProtoReflect().SetUnknown(append([]byte{0x12, 0x80, 0x80, 0x04}, long...))
	if _, err := client.Invite(ctx, m); err == nil {
		t.Error("a request of 64 KiB for the invitation is answered")
	}
	if _, err := client.Invite(ctx, &protocol.InvitationRequest{Version: protocol.Version}); err != nil {
		t.Error(err)
	}
}
