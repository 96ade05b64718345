package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// The tests of this file give a client a server that sends any messages.

// liar is a server of one run.
type liar struct {
	wire.FederationHandler
	run     string
	seq     int64                    // of the newest instruction
	invite  func(v *wire.Invitation) // changes the invitation; may be nil
	joined  func(v *wire.JoinAnswer) // changes the answer to a request to join; may be nil
	refuses string                   // why it refuses a client that joins
	script  func(l *liar) error      // what the server does after a client joined
	began   sync.Once                // the script
	over    context.CancelFunc       // ends the client
	orders  chan []*wire.Part        // instructions with their tensors, by call
	replies chan *wire.Reply         // the client's
	asks    atomic.Pointer[wire.Ask] // the last one
	drops   func(r *wire.Reply) bool // whether a reply gets no receipt; may be nil
}

func (l *liar) Invite(context.Context, *wire.InvitationRequest) (*wire.Invitation, error) {
	v := &wire.Invitation{Version: wire.Version, Run: l.run, Clients: 2, Config: []byte("name: x"),
		InlineLimit: 1 << 10}
	if l.invite != nil {
		l.invite(v)
	}
	return v, nil
}

func (l *liar) Join(context.Context, *wire.JoinCall) (*wire.JoinAnswer, error) {
	if l.refuses != "" {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New(l.refuses))
	}
	v := &wire.JoinAnswer{}
	if l.joined != nil {
		l.joined(v)
	}
	if l.script != nil {
		l.began.Do(func() {
			go func() {
				if l.script(l) == nil {
					l.over()
				}
			}()
		})
	}
	return v, nil
}

func (l *liar) Next(ctx context.Context, q *wire.Ask, s *connect.ServerStream[wire.Part]) error {
	l.asks.Store(q)
	select {
	case list := <-l.orders:
		for _, p := range list {
			if err := s.Send(p); err != nil {
				return err
			}
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *liar) Answer(_ context.Context, s *connect.ClientStream[wire.Part]) (*emptypb.Empty, error) {
	if s.Receive() {
		r := s.Msg().Reply
		for s.Receive() {
		}
		if l.drops != nil && l.drops(r) {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("no receipt"))
		}
		l.replies <- r
	}
	return &emptypb.Empty{}, nil
}

// reply returns the client's next reply, or nil if it sends none.
func (l *liar) reply() *wire.Reply { return <-l.replies }

// instruction returns the next valid instruction to train, with its tensors.
func (l *liar) instruction(round int, body []byte) *wire.Instruction {
	l.seq++
	o := wire.InstructionFor(l.run, message.Instruction{Kind: message.Train, Round: round}, 0, 2, wire.ContentOf(body))
	o.Attempt, o.Seq = wire.NewID(), l.seq
	o.Content.Body = body
	return o
}

// send gives the client an instruction in its next call, with parts of tensors.
func (l *liar) send(o *wire.Instruction, parts ...[]byte) {
	list := []*wire.Part{{Instruction: o}}
	for _, b := range parts {
		list = append(list, &wire.Part{Data: b})
	}
	l.orders <- list
}

// body returns encoded tensors of so many numbers.
func body(t testing.TB, numbers int) []byte {
	t.Helper()
	return []byte(nettest.BytesOf(t, tensor.Map{"shared/ctx": tensor.New(numbers)}))
}

// counting is an executor that counts its instructions and uploads what it got.
type counting struct {
	mu    *sync.Mutex
	count map[int]int // by round
}

func (counting) Rounds() int { return 0 }

func (c counting) Execute(_ context.Context, o message.Instruction, _ message.ClientState) (message.Reply,
	*message.ClientState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[o.Round]++
	return message.Reply{Upload: method.Upload{N: 1, Shared: o.Shared}}, &message.ClientState{Own: o.Shared}, nil
}

func (counting) Finish(message.Instruction, message.ClientState) error { return nil }

// believe runs a client of a lying server until the script ends without an error or the client ends, and returns what
// the client executed by round, and why it ends.
func (l *liar) believe(t *testing.T, dir string, largest int, logs *nettest.Logs) (count map[int]int, err error) {
	t.Helper()
	ca := nettest.NewAuthority(t)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	l.over, l.orders, l.replies = cancel, make(chan []*wire.Part), make(chan *wire.Reply, 1000)
	link := &netclient.Link{URL: nettest.Serve(t, ca.Identity(certs.ServerName), l), Name: "client-0",
		Identity: ca.Identity("client-0"), Log: logs.Logger()}
	defer link.Close()
	inv, err := netclient.FetchInvitation(ctx, link, largest)
	if err != nil {
		return nil, err
	}
	do := counting{&sync.Mutex{}, map[int]int{}}
	c, err := netclient.NewClient(inv, wire.JoinRequest{}, dir, do, logs.Logger())
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
	run := wire.NewID()
	small := body(t, 3)
	for say, lie := range map[string]func(o *wire.Instruction){
		"a newer one came before it":   func(o *wire.Instruction) { o.Seq = 1 },
		"it belongs to run":            func(o *wire.Instruction) { o.Run = wire.NewID() },
		"it is for client 1 of 2":      func(o *wire.Instruction) { o.Client = 1 },
		"it is for client 0 of 3":      func(o *wire.Instruction) { o.Total = 3 },
		"unknown kind of instruction":  func(o *wire.Instruction) { o.Kind = "run" },
		"invalid round 0":              func(o *wire.Instruction) { o.Round = -1 },
		"invalid number of steps -1":   func(o *wire.Instruction) { o.Steps = -1 },
		"is not a name":                func(o *wire.Instruction) { o.Statistic = "a\x1b[2J" },
		"it counts upload":             func(o *wire.Instruction) { o.Accepted = wire.NewID() },
		"has no record of":             func(o *wire.Instruction) { o.Safe = wire.NewID() },
		"\\\"../../x\\\" is not an id": func(o *wire.Instruction) { o.Accepted = "../../x" },
		"identity":                     func(o *wire.Instruction) { o.Attempt = "../../x" },
		"description of the tensors":   func(o *wire.Instruction) { o.Content.Sum = "../../x" },
		"invalid: 0 bytes":             func(o *wire.Instruction) { o.Content = nil },
	} {
		t.Run(say, func(t *testing.T) {
			t.Parallel()
			logs := &nettest.Logs{}
			l := &liar{run: run, script: func(l *liar) error {
				l.send(l.instruction(0, small))
				l.reply()
				bad := l.instruction(1, small)
				lie(bad)
				bad.Id = wire.IdentityOf(bad)
				l.send(bad)
				l.send(l.instruction(2, small))
				l.reply()
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
	logs, run := &nettest.Logs{}, wire.NewID()
	l := &liar{run: run, script: func(l *liar) error {
		for _, change := range []func(o *wire.Instruction){
			func(o *wire.Instruction) { o.Round++ },
			func(o *wire.Instruction) { o.Kind = string(message.Test) },
			func(o *wire.Instruction) { o.Set = "x" },
			func(o *wire.Instruction) { o.Statistic = "x" },
			func(o *wire.Instruction) { o.Steps = 1 },
			func(o *wire.Instruction) { o.Confusion = true },
			func(o *wire.Instruction) { o.Content.Sum = wire.Checksum([]byte("x")) },
			func(o *wire.Instruction) { o.Content.Size++ },
		} {
			o := l.instruction(0, body(t, 1))
			change(o)
			l.send(o)
		}
		l.send(l.instruction(5, body(t, 1)))
		l.reply()
		return nil
	}}
	got, _ := l.believe(t, t.TempDir(), 1<<20, logs)
	if n := strings.Count(logs.String(), "does not match its identity"); n != 8 || fmt.Sprint(got) != "map[5:1]" ||
		!strings.Contains(logs.String(), "dropped=8") {
		t.Errorf("%d were dropped, executed %v", n, got)
	}
}

// A client stores neither other parts nor more bytes than announced: wrong parts, and damaged tensors, are its reply's
// error. Larger than it accepts, the tensors are refused before the first part. If the parts end early, the client asks
// again.
func TestLyingParts(t *testing.T) {
	logs := &nettest.Logs{}
	large := body(t, 50000)
	parts := slices.Collect(slices.Chunk(large, wire.PartSize))
	l := &liar{run: wire.NewID(), script: func(l *liar) error {
		fails := func(o *wire.Instruction, say string, parts ...[]byte) {
			t.Helper()
			l.send(o, parts...)
			if r := l.reply(); r.Id != o.Id || !strings.Contains(r.Error, say) {
				t.Errorf("%q: %.300v", say, r)
			}
		}
		announced := func(round int) *wire.Instruction {
			o := l.instruction(round, large)
			o.Content.Body = nil
			return o
		}
		o := announced(0)
		l.send(o, parts[:2]...) // an early end
		l.send(o, parts...)
		if r := l.reply(); r.Error != "" || r.Content.Size == 0 {
			t.Errorf("%v", r)
		}
		fails(announced(1), "the tensors are damaged", large)
		fails(announced(2), "the tensors are damaged", parts[1], parts[0], parts[2], parts[3])
		fails(announced(3), "the tensors are damaged", parts[0], nil)
		fails(announced(4), "the tensors are damaged", append(slices.Clone(parts[:3]),
			make([]byte, len(parts[3])+1))...)
		o = l.instruction(5, large)
		o.Content.Body = large[:len(large)-1] // not of the announced size
		fails(o, "the tensors are damaged", make([]byte, 100), large)
		o = l.instruction(6, make([]byte, 2<<20))
		o.Content.Body = nil
		fails(o, "too large: 2097152 bytes; at most 1048576 are taken")
		fails(l.instruction(7, []byte("no tensors")), "")
		damaged := l.instruction(8, large)
		damaged.Content.Body = append(slices.Clone(large[:len(large)-1]), 1)
		fails(damaged, "the tensors are damaged")
		l.send(l.instruction(9, body(t, 1)))
		l.reply()
		return nil
	}}
	got, err := l.believe(t, t.TempDir(), 1<<20, logs)
	if !errors.Is(err, context.Canceled) || fmt.Sprint(got) != "map[0:1 9:1]" {
		t.Errorf("%v, executed %v\n%s", err, got, logs)
	}
}

// A reply without a receipt is sent again, and an instruction that comes again as another attempt, without its tensors,
// gets the same reply, without another computation. One that failed runs again, with its tensors.
func TestInstructionsThatComeAgain(t *testing.T) {
	logs := &nettest.Logs{}
	large := body(t, 50000)
	parts := slices.Collect(slices.Chunk(large, wire.PartSize))
	lost := 0
	l := &liar{run: wire.NewID(), drops: func(*wire.Reply) bool { lost++; return lost < 3 }}
	l.script = func(l *liar) error {
		again := func(o *wire.Instruction, body []byte) *wire.Instruction {
			l.seq++
			o = protobuf.CloneOf(o)
			o.Attempt, o.Seq, o.Content.Body = wire.NewID(), l.seq, body
			return o
		}
		o := l.instruction(0, large)
		o.Content.Body = nil
		l.send(o, parts...)
		first := l.reply()
		o = again(o, nil)
		l.send(o)
		if has := l.asks.Load().Has; has != o.Id {
			t.Errorf("the client has %q", has)
		}
		if r := l.reply(); first.Content.Sum != r.Content.Sum || r.Attempt != o.Attempt {
			t.Errorf("%v, %v", first, r)
		}
		bad := l.instruction(1, []byte("no tensors"))
		l.send(bad)
		l.reply()
		busytest.Until(t, "a client that knows of the receipt", func() bool {
			l.send(again(bad, nil)) // it has no tensors any more, and asks for them
			return l.asks.Load().Has == ""
		})
		bad = again(bad, []byte("no tensors"))
		l.send(bad)
		for r := l.reply(); r.Attempt != bad.Attempt; r = l.reply() {
			if r.Error == "" {
				t.Errorf("%v", r)
			}
		}
		return nil
	}
	got, err := l.believe(t, t.TempDir(), 1<<20, logs)
	if !errors.Is(err, context.Canceled) || fmt.Sprint(got) != "map[0:1]" || lost < 3 {
		t.Errorf("%v, executed %v\n%s", err, got, logs)
	}
}

// A client that cannot take the final parameters tells the server why, and ends with that reason: its run is not over
// in order.
func TestDamagedEnd(t *testing.T) {
	l := &liar{run: wire.NewID(), script: func(l *liar) error {
		content := wire.ContentOf(body(t, 3))
		o := wire.InstructionFor(l.run, message.Instruction{Kind: wire.EndKind}, 0, 2, content)
		l.seq++
		o.Attempt, o.Seq, o.Content.Body = wire.NewID(), l.seq, make([]byte, content.Size)
		l.send(o)
		return errors.New("the client ends by itself")
	}}
	_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
	close(l.replies) // the client has its receipt
	said := protobuf.ValueOrDefault(l.reply()).Error
	if err == nil || said == "" || err.Error() != said || !strings.Contains(said, wire.ErrDamaged.Error()) {
		t.Errorf("%v, and the server hears %q", err, said)
	}
}

// A message beyond --largest ends the client with the reason.
func TestLargestMessage(t *testing.T) {
	l := &liar{run: wire.NewID(), script: func(l *liar) error {
		l.send(l.instruction(0, make([]byte, 2<<20+wire.MaxControl)))
		return errors.New("the client goes on")
	}}
	if _, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{}); !errors.Is(err, netclient.ErrLarge) {
		t.Errorf("%v", err)
	}
}

// A server that sends instructions without end costs the client a limited number of goroutines, and does not keep it
// from leaving.
func TestInstructionsWithoutEnd(t *testing.T) {
	var grown int
	l := &liar{run: wire.NewID()}
	l.script = func(l *liar) error {
		first := l.instruction(0, body(t, 10))
		l.send(first)
		goroutines := runtime.NumGoroutine()
		for i := range 1000 {
			first = protobuf.CloneOf(first)
			l.seq++
			first.Attempt, first.Seq = wire.NewID(), l.seq // the same as another attempt
			l.send(first)
			if i%100 == 0 {
				l.send(l.instruction(1+i, body(t, 10)))
			}
		}
		grown = runtime.NumGoroutine() - goroutines
		return nil
	}
	go func() {
		busytest.Until(t, "the server", func() bool { return l.asks.Load() != nil })
		for range l.replies {
		}
	}()
	_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
	if !errors.Is(err, context.Canceled) || grown > 100 { // a few; with one for each message 1000
		t.Errorf("%v; %d goroutines more", err, grown)
	}
}

// An invitation that no server sends, and an answer to a request to join that counts an unknown upload, end the client
// with the reason in printable text. A client that must wait logs the reason.
func TestLyingInvitations(t *testing.T) {
	for say, lie := range map[string]func(v *wire.Invitation){
		"the server uses protocol version 9, this program version 11; use the same": func(v *wire.Invitation) {
			v.Version = 9
		},
		"the server's invitation is invalid":             func(v *wire.Invitation) { v.Run = "../../x" },
		"the server's invitation is invalid\x00":         func(v *wire.Invitation) { v.InlineLimit = 0 },
		"the server's invitation is invalid\x00\x00":     func(v *wire.Invitation) { v.Clients = 0 },
		"the server's invitation is invalid\x00\x00\x00": func(v *wire.Invitation) { v.Clients = math.MaxUint32 },
		"too large: 2097152 bytes; at most 1048576 are": func(v *wire.Invitation) {
			v.Config = make([]byte, 2<<20)
		},
	} {
		l := &liar{run: wire.NewID(), invite: lie}
		_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
		goldentest.WantErrorOf(t, say, err, strings.TrimRight(say, "\x00"))
	}
	for say, lie := range map[string]func(v *wire.JoinAnswer){
		"has no record of":     func(v *wire.JoinAnswer) { v.Accepted = wire.NewID() },
		"has no record of\x00": func(v *wire.JoinAnswer) { v.Accepted = "../../x" },
	} {
		l := &liar{run: wire.NewID(), joined: lie}
		_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
		goldentest.WantErrorOf(t, say, err, strings.TrimRight(say, "\x00"))
	}
	l := &liar{run: wire.NewID(), refuses: "a\n\x1b[2Jb\t"}
	_, err := l.believe(t, t.TempDir(), 1<<20, &nettest.Logs{})
	goldentest.WantError(t, err, "refuses this client: a  [2Jb ")
	logs := &nettest.Logs{}
	l = &liar{run: wire.NewID(), joined: func(v *wire.JoinAnswer) { v.Later = "it is too early" },
		script: func(*liar) error {
			busytest.Until(t, "the reason", func() bool { return strings.Contains(logs.String(), "it is too early") })
			return nil
		}}
	if _, err := l.believe(t, t.TempDir(), 1<<20, logs); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A server that goes back before its last checkpoint is recognised by the client's folder, also after the client was
// started again.
func TestServerGoesBack(t *testing.T) {
	logs, run, dir := &nettest.Logs{}, wire.NewID(), t.TempDir()
	small := body(t, 3)
	var ids []string
	l := &liar{run: run, script: func(l *liar) error {
		train := func(round int, accepted, safe string) {
			o := l.instruction(round, small)
			o.Accepted, o.Safe = accepted, safe
			ids = append(ids, o.Id)
			l.send(o)
			l.reply()
		}
		train(0, "", "")
		train(1, ids[0], ids[0])
		train(2, ids[1], ids[1])
		back := l.instruction(1, small)
		back.Accepted, back.Safe = ids[0], ids[0]
		l.send(back)
		forgets := l.instruction(1, small)
		l.send(forgets)
		train(3, ids[2], ids[1])
		return nil
	}}
	if got, err := l.believe(t, dir, 1<<20, logs); fmt.Sprint(got) != "map[0:1 1:1 2:1 3:1]" ||
		!strings.Contains(logs.String(), "has no record of") ||
		!strings.Contains(logs.String(), "it lacks uploads of this client that the server's checkpoint has") {
		t.Errorf("%v, executed %v\n%s", err, got, logs)
	}
	l = &liar{run: run, joined: func(v *wire.JoinAnswer) { v.Accepted, v.Safe = ids[0], ids[0] }}
	_, err := l.believe(t, dir, 1<<20, logs)
	goldentest.WantError(t, err, "has no record of")
}
