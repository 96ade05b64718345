package remote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/protocol"
	"promptfed/federation/net/remote"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// The tests of this file give a client a server that sends any messages.

// liar is a server of one run.
type liar struct {
	protocol.UnimplementedFederationHandler
	run    string
	invite func(v *protocol.Invitation)                   // changes the invitation; may be nil
	joined func(v *protocol.JoinAnswer)                   // changes the answer to a request to join; may be nil
	script func(ctx context.Context, s *liarStream) error // what the server does after a client joined
}

// liarStream is a client's stream.
type liarStream struct {
	*connect.BidiStream[protocol.ClientMessage, protocol.ServerMessage]
	in  chan *protocol.ClientMessage
	seq int64
}

func (l *liar) Invite(context.Context, *protocol.InvitationRequest) (*protocol.Invitation, error) {
	v := &protocol.Invitation{Version: protocol.Version, Run: l.run, Clients: 2, Config: []byte("name: x"),
		InlineLimit: 1 << 10}
	if l.invite != nil {
		l.invite(v)
	}
	return v, nil
}

func (l *liar) Participate(ctx context.Context,
	stream *connect.BidiStream[protocol.ClientMessage, protocol.ServerMessage]) error {
	if _, err := stream.Receive(); err != nil {
		return err
	}
	v := &protocol.JoinAnswer{Ok: true}
	if l.joined != nil {
		l.joined(v)
	}
	err := stream.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Answer{Answer: v}})
	if err != nil || l.script == nil {
		return err
	}
	return l.script(ctx, &liarStream{BidiStream: stream, in: make(chan *protocol.ClientMessage, 1<<10)})
}

// receive reads the client's messages.
func (s *liarStream) receive() {
	for {
		m, err := s.Receive()
		if err != nil {
			close(s.in)
			return
		}
		s.in <- m
	}
}

// reply returns the client's next reply, or nil if the stream has ended.
func (s *liarStream) reply() *protocol.Reply {
	for m := range s.in {
		if r := m.GetReply(); r != nil {
			return r
		}
	}
	return nil
}

// instruction returns the next valid instruction to train, with its tensors.
func (s *liarStream) instruction(run string, round int, body []byte) *protocol.Instruction {
	s.seq++
	o := protocol.InstructionFor(run, message.Instruction{Kind: message.Train, Round: round}, 0, 2,
		protocol.ContentOf(body))
	o.Attempt, o.Seq = protocol.NewID(), s.seq
	o.Content.Body = body
	return o
}

func (s *liarStream) send(o *protocol.Instruction) error {
	return s.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Instruction{Instruction: o}})
}

func (s *liarStream) sendChunk(c *protocol.Chunk) error {
	return s.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Chunk{Chunk: c}})
}

// body returns encoded tensors of so many numbers.
func body(t testing.TB, numbers int) []byte {
	t.Helper()
	b, err := message.EncodeTensors(tensor.Map{"shared/ctx": tensor.New(numbers)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counting is an executor that counts its instructions.
type counting struct {
	echo
	mu    *sync.Mutex
	count map[int]int // by round
}

func (c counting) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	c.mu.Lock()
	c.count[o.Round]++
	c.mu.Unlock()
	return c.echo.Execute(ctx, o, s)
}

// believe runs a client of a lying server until the script ends without an error or the client ends, and returns what
// the client executed by round, and why it ends.
func (l *liar) believe(t *testing.T, dir string, largest int, logs *nettest.Logs) (count map[int]int, err error) {
	t.Helper()
	ca := nettest.NewAuthority(t)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	if script := l.script; script != nil {
		l.script = func(ctx context.Context, s *liarStream) error {
			err := script(ctx, s)
			if err == nil {
				cancel()
			}
			return err
		}
	}
	link := &remote.Link{URL: nettest.Serve(t, ca.Identity(certs.ServerName), l), Name: "client-0",
		Identity: ca.Identity("client-0"), Log: logs.Logger()}
	defer link.Close()
	inv, err := remote.FetchInvitation(ctx, link, largest)
	if err != nil {
		return nil, err
	}
	do := counting{0, &sync.Mutex{}, map[int]int{}}
	c, err := remote.NewClient(inv, protocol.JoinRequest{}, dir, do, logs.Logger())
	if err == nil {
		err = c.Run(ctx)
	}
	do.mu.Lock()
	defer do.mu.Unlock()
	return do.count, err
}

// A client does not execute an instruction that is old, of another run, for another client, damaged, of no kind or
// round of the experiment, or that counts uploads that the client does not know; it logs the reason. It executes the
// next valid one.
func TestLyingInstructions(t *testing.T) {
	run := protocol.NewID()
	small := body(t, 3)
	for say, lie := range map[string]func(o *protocol.Instruction){
		"a newer one came before it":   func(o *protocol.Instruction) { o.Seq = 1 },
		"it belongs to run":            func(o *protocol.Instruction) { o.Run = protocol.NewID() },
		"it is for client 1 of 2":      func(o *protocol.Instruction) { o.Client = 1 },
		"it is for client 0 of 3":      func(o *protocol.Instruction) { o.Total = 3 },
		"unknown kind of instruction":  func(o *protocol.Instruction) { o.Kind = "run" },
		"invalid round 0":              func(o *protocol.Instruction) { o.Round = -1 },
		"invalid number of steps -1":   func(o *protocol.Instruction) { o.Steps = -1 },
		"is not a name":                func(o *protocol.Instruction) { o.Statistic = "a\x1b[2J" },
		"it counts upload":             func(o *protocol.Instruction) { o.Accepted = protocol.NewID() },
		"has no record of":             func(o *protocol.Instruction) { o.Safe = protocol.NewID() },
		"\\\"../../x\\\" is not an id": func(o *protocol.Instruction) { o.Accepted = "../../x" },
		"identity":                     func(o *protocol.Instruction) { o.Attempt = "../../x" },
		"description of the tensors":   func(o *protocol.Instruction) { o.Content.Sum = "../../x" },
		"invalid: 0 bytes":             func(o *protocol.Instruction) { o.Content = nil },
	} {
		t.Run(say, func(t *testing.T) {
			t.Parallel()
			logs := &nettest.Logs{}
			l := &liar{run: run, script: func(_ context.Context, s *liarStream) error {
				go s.receive()
				if s.send(s.instruction(run, 0, small)); s.reply() == nil {
					t.Error("the client does not answer")
				}
				bad := s.instruction(run, 1, small)
				lie(bad)
				bad.Id = protocol.IdentityOf(bad)
				s.send(bad)
				if s.send(s.instruction(run, 2, small)); s.reply() == nil {
					t.Error("the client does not answer the next instruction")
				}
				return nil
			}}
			got, err := l.believe(t, t.TempDir(), 1<<20, logs)
			if !errors.Is(err, context.Canceled) || fmt.Sprint(got) != "map[0:1 2:1]" ||
				!strings.Contains(logs.String(), "an instruction is dropped") || !strings.Contains(logs.String(), say) {
				t.Errorf("%v, executed %v\n%s", err, got, logs)
			}
		})
	}
}

// Nothing can be changed in an instruction without changing its identity.
func TestChangedInstructions(t *testing.T) {
	logs, run := &nettest.Logs{}, protocol.NewID()
	l := &liar{run: run, script: func(_ context.Context, s *liarStream) error {
		go s.receive()
		for _, change := range []func(o *protocol.Instruction){
			func(o *protocol.Instruction) { o.Round++ },
			func(o *protocol.Instruction) { o.Kind = string(message.Test) },
			func(o *protocol.Instruction) { o.Set = "x" },
			func(o *protocol.Instruction) { o.Statistic = "x" },
			func(o *protocol.Instruction) { o.Steps = 1 },
			func(o *protocol.Instruction) { o.Confusion = true },
			func(o *protocol.Instruction) { o.Content.Sum = protocol.Checksum([]byte("x")) },
			func(o *protocol.Instruction) { o.Content.Size++ },
		} {
			o := s.instruction(run, 0, body(t, 1))
			change(o)
			s.send(o)
		}
		s.send(s.instruction(run, 5, body(t, 1)))
		s.reply()
		return nil
	}}
	got, _ := l.believe(t, t.TempDir(), 1<<20, logs)
	if n := strings.Count(logs.String(), "does not match its identity"); n != 8 || fmt.Sprint(got) != "map[5:1]" {
		t.Errorf("%d were dropped, executed %v", n, got)
	}
}

// A client asks for the chunks of its instruction, and stores neither other chunks nor more bytes than announced. Three
// times damaged, the tensors are its reply's error; larger than it accepts, they are refused before the first chunk.
func TestLyingChunks(t *testing.T) {
	logs, run, dir := &nettest.Logs{}, protocol.NewID(), t.TempDir()
	large := body(t, 50000)
	stored := func() (n int64) {
		files, _ := filepath.Glob(filepath.Join(dir, "order-*"))
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	l := &liar{run: run, script: func(_ context.Context, s *liarStream) error {
		go s.receive()
		fetch := func(want int) {
			t.Helper()
			for m := range s.in {
				if f := m.GetFetch(); f != nil {
					if int(f.Offset) != want {
						t.Errorf("the client asks for chunks from %d on, not %d", f.Offset, want)
					}
					return
				}
			}
			t.Error("the client asks for no chunks")
		}
		o := s.instruction(run, 0, large)
		o.Content.Body = nil
		s.send(o)
		fetch(0)
		chunk := func(sum string, offset int, data []byte) {
			s.sendChunk(&protocol.Chunk{Sum: sum, Offset: uint64(offset), Data: data})
		}
		for range 100 {
			chunk(protocol.Checksum([]byte("x")), 0, large[:64<<10]) // of other tensors
			chunk(o.Content.Sum, 64<<10, large[:64<<10])             // at another offset
			chunk(o.Content.Sum, -1, large[:64<<10])
		}
		chunk(o.Content.Sum, 0, append(large[:len(large):len(large)], 0)) // more bytes than announced
		chunk(o.Content.Sum, 0, large[:10])                               // a small one is right, too
		chunk(o.Content.Sum, 10, large[10:])
		if r := s.reply(); r.GetError() != "" || r.GetContent().GetSize() == 0 {
			t.Errorf("%v", r)
		}
		o = s.instruction(run, 1, large)
		o.Content.Body = large[:len(large)-1] // not of the announced size
		s.send(o)
		for range 3 {
			fetch(0)
			chunk(o.Content.Sum, 0, make([]byte, len(large)))
		}
		if r := s.reply(); !strings.Contains(r.GetError(), "the tensors are damaged") {
			t.Errorf("%v", r)
		}
		o = s.instruction(run, 2, make([]byte, 2<<20))
		o.Content.Body = nil
		s.send(o)
		if r := s.reply(); !strings.Contains(r.GetError(), "too large: 2097152 bytes; at most 1048576 are taken") {
			t.Errorf("%v", r)
		}
		o = s.instruction(run, 3, []byte("no tensors"))
		s.send(o)
		if r := s.reply(); r.GetError() == "" {
			t.Errorf("%v", r)
		}
		o = s.instruction(run, 4, large)
		o.Content.Body = nil
		s.send(o)
		fetch(0)
		for range 2000 { // without end
			chunk(o.Content.Sum, 0, large[:64<<10])
		}
		s.send(s.instruction(run, 5, body(t, 1)))
		s.reply()
		if n := stored(); n > int64(len(large)) {
			t.Errorf("the client's folder holds %d bytes", n)
		}
		return nil
	}}
	got, err := l.believe(t, dir, 1<<20, logs)
	if !errors.Is(err, context.Canceled) || fmt.Sprint(got) != "map[0:1 5:1]" {
		t.Errorf("%v, executed %v\n%s", err, got, logs)
	}
}

// A message beyond --largest ends the client with the reason.
func TestLargestMessage(t *testing.T) {
	logs, run := &nettest.Logs{}, protocol.NewID()
	l := &liar{run: run, script: func(ctx context.Context, s *liarStream) error {
		s.send(s.instruction(run, 0, make([]byte, 2<<20+protocol.MaxControl)))
		<-ctx.Done()
		return ctx.Err()
	}}
	if _, err := l.believe(t, t.TempDir(), 1<<20, logs); !errors.Is(err, remote.ErrLarge) {
		t.Errorf("%v", err)
	}
}

// A server that sends instructions, requests and receipts without end and reads nothing costs the client a limited
// amount of memory, and does not keep it from leaving.
func TestMessagesWithoutEnd(t *testing.T) {
	logs, run := &nettest.Logs{}, protocol.NewID()
	var grown int
	l := &liar{run: run}
	l.script = func(_ context.Context, s *liarStream) error {
		b := body(t, 200<<10)
		first := s.instruction(run, 0, b)
		first.Content.Body = nil
		s.send(first)
		for at := 0; at < len(b); at += 64 << 10 {
			s.sendChunk(&protocol.Chunk{Sum: first.Content.Sum, Offset: uint64(at), Data: b[at:min(at+64<<10, len(b))]})
		}
		goroutines := runtime.NumGoroutine()
		for i := range 1000 {
			first.Attempt, first.Seq = protocol.NewID(), first.Seq+1 // the same as another attempt
			s.seq = first.Seq
			s.send(first)
			s.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Fetch{Fetch: &protocol.Fetch{
				Sum: first.Content.Sum, Offset: uint64(i % 3 * 64 << 10)}}})
			s.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Receipt{Receipt: &protocol.Receipt{
				Id: protocol.NewID()}}})
			if i%100 == 0 {
				s.send(s.instruction(run, 1+i, body(t, 10)))
			}
		}
		grown = runtime.NumGoroutine() - goroutines
		return nil
	}
	_, err := l.believe(t, t.TempDir(), 1<<20, logs)
	if !errors.Is(err, context.Canceled) || grown > 100 { // a few; with one for each message 1000
		t.Errorf("%v; %d goroutines more", err, grown)
	}
}

// An invitation that no server sends, and an answer to a request to join that counts an unknown upload, end the client
// with the reason in printable text.
func TestLyingInvitations(t *testing.T) {
	for say, lie := range map[string]func(v *protocol.Invitation){
		"the server uses protocol version 8, this program version 9; use the same": func(v *protocol.Invitation) {
			v.Version = 8
		},
		"the server's invitation is invalid":         func(v *protocol.Invitation) { v.Run = "../../x" },
		"the server's invitation is invalid\x00":     func(v *protocol.Invitation) { v.InlineLimit = 0 },
		"the server's invitation is invalid\x00\x00": func(v *protocol.Invitation) { v.Clients = 0 },
		"too large: 2097152 bytes; at most 1048576 are": func(v *protocol.Invitation) {
			v.Config = make([]byte, 2<<20)
		},
	} {
		l := &liar{run: protocol.NewID(), invite: lie}
		_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimRight(say, "\x00")) {
			t.Errorf("%q: %v", say, err)
		}
	}
	for say, lie := range map[string]func(v *protocol.JoinAnswer){
		"has no record of":              func(v *protocol.JoinAnswer) { v.Accepted = protocol.NewID() },
		"has no record of\x00":          func(v *protocol.JoinAnswer) { v.Accepted = "../../x" },
		"refuses this client: a [2Jb":   func(v *protocol.JoinAnswer) { v.Ok, v.Reason = false, "a\x1b[2Jb" },
		"refuses this client: a  [2Jb ": func(v *protocol.JoinAnswer) { v.Ok, v.Reason = false, "a\n\x1b[2Jb\t" },
	} {
		l := &liar{run: protocol.NewID(), joined: lie}
		_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
		if err == nil || !strings.Contains(err.Error(), strings.TrimRight(say, "\x00")) {
			t.Errorf("%q: %v", say, err)
		}
	}
}

// A server that goes back before its last checkpoint is recognised by the client's folder, also after the client was
// started again.
func TestServerGoesBack(t *testing.T) {
	logs, run, dir := &nettest.Logs{}, protocol.NewID(), t.TempDir()
	small := body(t, 3)
	var ids []string
	l := &liar{run: run, script: func(_ context.Context, s *liarStream) error {
		go s.receive()
		train := func(round int, accepted, safe string) {
			o := s.instruction(run, round, small)
			o.Accepted, o.Safe = accepted, safe
			ids = append(ids, o.Id)
			if s.send(o); s.reply() == nil {
				t.Errorf("round %d has no reply", round)
			}
		}
		train(0, "", "")
		train(1, ids[0], ids[0])
		train(2, ids[1], ids[1])
		back := s.instruction(run, 1, small)
		back.Accepted, back.Safe = ids[0], ids[0]
		s.send(back)
		forgets := s.instruction(run, 1, small)
		s.send(forgets)
		train(3, ids[2], ids[1])
		return nil
	}}
	if got, err := l.believe(t, dir, 1<<20, logs); fmt.Sprint(got) != "map[0:1 1:1 2:1 3:1]" ||
		!strings.Contains(logs.String(), "has no record of") ||
		!strings.Contains(logs.String(), "it lacks uploads of this client that the server's checkpoint has") {
		t.Errorf("%v, executed %v\n%s", err, got, logs)
	}
	l = &liar{run: run, joined: func(v *protocol.JoinAnswer) { v.Accepted, v.Safe = ids[0], ids[0] }}
	if _, err := l.believe(t, dir, 1<<20, logs); err == nil || !strings.Contains(err.Error(), "has no record of") {
		t.Error(err)
	}
}
