package attack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
)

// A flood is what an attacker repeats as fast as it can, on each of its connections, until it fails.
type flood struct {
	user        string // of its certificate; empty for none
	connections int
	calls       func(ctx context.Context, s *server, a *attacker) error // by the protocol
	frames      func(f *frames) error                                   // or by HTTP/2 frames
	deaf        bool                                                    // and never reads
	opens       func(ctx context.Context, s *server) error              // or by connections
}

// Clients of TestFloods: the attacker has the certificates of the last client, of the next one, which the run does not
// have, and of the status user.
const (
	floodClients = 21
	attackers    = floodClients - 1
)

// calling joins as a client, and repeats calls, with the newest instruction.
func calling(calls func(ctx context.Context, x *session, o *wire.Instruction)) func(context.Context, *server,
	*attacker) error {
	return func(ctx context.Context, s *server, a *attacker) error {
		x, err := a.enter(ctx)
		if err != nil {
			return err
		}
		begins()
		o, err := x.next(ctx)
		for ; err == nil; err = ctx.Err() {
			calls(ctx, x, o)
		}
		return err
	}
}

// begins prints once that the attacker's first attempt came through.
var begins = sync.OnceFunc(func() { fmt.Println("the attack begins") })

// batch repeats a frame in each write of an attacker.
func batch(write func(w *http2.Framer, f *frames) error) func(f *frames) error {
	return func(f *frames) error {
		var b bytes.Buffer
		w := http2.NewFramer(&b, nil)
		w.AllowIllegalWrites = true
		for range 500 {
			if err := write(w, f); err != nil {
				return err
			}
		}
		_, err := f.Write(b.Bytes())
		return err
	}
}

// headers returns the header of a new stream.
func (f *frames) headers(more ...string) http2.HeadersFrameParam {
	f.next += 2
	return http2.HeadersFrameParam{StreamID: f.next, EndHeaders: true,
		BlockFragment: f.request(wire.FederationAnswerProcedure, more...)}
}

var (
	member  = certs.UserOf(attackers)
	unknown = certs.UserOf(floodClients)
	zeros   = make([]byte, 60<<10)
)

// begun calls begins if the server answered a call.
func begun(err error) {
	if err == nil || connect.IsWireError(err) {
		begins()
	}
}

func invite(ctx context.Context, _ *server, a *attacker) error {
	for range 100 {
		_, err := a.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
		begun(err)
	}
	return nil
}

func askStatus(ctx context.Context, _ *server, a *attacker) error {
	for range 100 {
		_, err := a.Status(ctx, &emptypb.Empty{})
		begun(err)
	}
	return nil
}

// joining sends a request to join in each call.
func joining(request func(s *server, run string) *wire.JoinCall) func(context.Context, *server, *attacker) error {
	return func(ctx context.Context, s *server, a *attacker) error {
		_, err := a.Join(ctx, request(s, wire.NewID()))
		begun(err)
		return ctx.Err()
	}
}

var floods = map[string]flood{
	// calls that are permitted
	"status":                      {user: certs.StatusUser, connections: 8, calls: askStatus},
	"invitations":                 {user: member, connections: 8, calls: invite},
	"invitations without a place": {user: unknown, connections: 8, calls: invite},
	"requests to join": {user: member, connections: 8, calls: joining(func(s *server, run string) *wire.JoinCall {
		return s.joinRequest(run)
	})},
	"requests to join of 4 MB": {user: member, connections: 8, calls: joining(
		func(s *server, run string) *wire.JoinCall {
			return &wire.JoinCall{Run: run, Instance: run, Request: make([]byte, 4_000_000)}
		})},
	"replies": {user: member, connections: 1, calls: calling(func(ctx context.Context, x *session,
		o *wire.Instruction) {
		x.reply(ctx, &wire.Reply{Id: o.Id, Attempt: wire.NewID(), Error: "no"})
		x.reply(ctx, &wire.Reply{})
	})},
	"large replies": {user: member, connections: 1, calls: calling(func(ctx context.Context, x *session,
		_ *wire.Instruction) {
		x.reply(ctx, &wire.Reply{Id: wire.NewID(), Error: "no", Scores: make([]byte, 4_000_000)})
	})},
	"parts": {user: member, connections: 1, calls: calling(func(ctx context.Context, x *session,
		o *wire.Instruction) {
		x.reply(ctx, &wire.Reply{Id: o.Id, Attempt: o.Attempt, Examples: 1, Content: &wire.Content{Size: 8000,
			Sum: wire.Checksum(nil)}}, zeros[:7999])
		x.reply(ctx, &wire.Reply{Id: wire.NewID()}, slices.Repeat([][]byte{zeros}, 100)...)
	})},
	"instructions": {user: member, connections: 1, calls: calling(func(ctx context.Context, x *session,
		_ *wire.Instruction) {
		x.seq = 0
		x.next(ctx)
	})},
	"messages of no kind": {user: member, connections: 1, calls: calling(func(ctx context.Context, x *session,
		_ *wire.Instruction) {
		x.send(ctx, &wire.Part{})
	})},
	"joining and leaving": {user: member, connections: 1, calls: func(ctx context.Context, s *server,
		a *attacker) error {
		x, err := a.enter(ctx)
		if err == nil {
			begins()
			err = x.leave(ctx)
		}
		return err
	}},
	"calls of nobody": {user: member, connections: 8, calls: func(ctx context.Context, s *server, a *attacker) error {
		x := &session{attacker: a, instance: wire.NewID()}
		_, err := x.next(ctx)
		begun(err)
		x.reply(ctx, &wire.Reply{Id: wire.NewID()}, zeros)
		return ctx.Err()
	}},
	// calls that are forbidden
	"status of a client":    {user: member, connections: 8, calls: askStatus},
	"invitations of status": {user: certs.StatusUser, connections: 8, calls: invite},
	// HTTP/2
	"rapid reset": {user: member, connections: 8, frames: batch(func(w *http2.Framer, f *frames) error {
		h := f.headers()
		if err := w.WriteHeaders(h); err != nil {
			return err
		}
		return w.WriteRSTStream(h.StreamID, http2.ErrCodeCancel)
	})},
	"streams": {user: member, connections: 8, frames: batch(func(w *http2.Framer, f *frames) error {
		return w.WriteHeaders(f.headers())
	})},
	"calls of nothing": {user: member, connections: 8, frames: batch(func(w *http2.Framer, f *frames) error {
		h := f.headers("content-type", "text/plain")
		h.EndStream = true
		return w.WriteHeaders(h)
	})},
	"pings": {user: member, connections: 8, frames: batch(func(w *http2.Framer, _ *frames) error {
		return w.WritePing(false, [8]byte{})
	})},
	"settings": {user: member, connections: 8, frames: batch(func(w *http2.Framer, _ *frames) error {
		return w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	})},
	"window updates": {user: member, connections: 8, frames: batch(func(w *http2.Framer, _ *frames) error {
		return w.WriteWindowUpdate(0, 1)
	})},
	"priorities": {user: member, connections: 8, frames: batch(func(w *http2.Framer, f *frames) error {
		return w.WritePriority(f.next+2, http2.PriorityParam{StreamDep: f.next, Weight: 1})
	})},
	"unknown frames": {user: member, connections: 8, frames: batch(func(w *http2.Framer, _ *frames) error {
		return w.WriteRawFrame(0x77, 0, 0, nil)
	})},
	"empty data": {user: member, connections: 8, frames: func(f *frames) error {
		if f.next == 1 {
			if _, err := f.begin(wire.FederationAnswerProcedure); err != nil {
				return err
			}
		}
		return batch(func(w *http2.Framer, _ *frames) error { return w.WriteData(1, false, nil) })(f)
	}},
	"headers without end": {user: member, connections: 8, frames: func(f *frames) error {
		if f.next == 1 {
			f.next += 2
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1,
				BlockFragment: f.request(wire.FederationAnswerProcedure)})
			if err != nil {
				return err
			}
		}
		return batch(func(w *http2.Framer, _ *frames) error { return w.WriteContinuation(1, false, nil) })(f)
	}},
	"large headers": {user: member, connections: 8, frames: batch(func(w *http2.Framer, f *frames) error {
		h := f.headers("x", strings.Repeat("y", 12<<10))
		h.EndStream = true
		return w.WriteHeaders(h)
	})},
	"header bombs": {user: member, connections: 8, frames: batch(func(w *http2.Framer, f *frames) error {
		h := f.headers("x", strings.Repeat("y", 3000)) // in the table; each further byte is 3 kB
		h.BlockFragment = append(h.BlockFragment, bytes.Repeat([]byte{0x80 | 62}, 12<<10)...)
		return w.WriteHeaders(h)
	})},
	"unread pings": {user: member, connections: 8, deaf: true, frames: batch(
		func(w *http2.Framer, _ *frames) error { return w.WritePing(false, [8]byte{}) })},
	"unread invitations": {user: member, connections: 8, deaf: true, frames: unread(wire.FederationInviteProcedure,
		&wire.InvitationRequest{Version: wire.Version})},
	"unread status": {user: certs.StatusUser, connections: 8, deaf: true,
		frames: unread(wire.FederationStatusProcedure, &emptypb.Empty{})},
	"unread receipts": {user: member, connections: 8, deaf: true, frames: unread(wire.FederationAnswerProcedure,
		&wire.Part{Reply: &wire.Reply{Id: wire.NewID(), Attempt: string(make([]byte, 100))}})},
	"unread instructions": {user: member, connections: 1, calls: func(ctx context.Context, s *server,
		a *attacker) error {
		x, err := a.enter(ctx)
		for ; err == nil; begins() { // each call is in place of the one before
			_, err = x.Next(ctx, &wire.Ask{Instance: x.instance})
		}
		return err
	}},
	"messages of 3 GiB": {user: member, connections: 8, calls: func(ctx context.Context, s *server, a *attacker) error {
		return a.pour(ctx, 3<<30, 0)
	}},
	"messages that do not end": {user: member, connections: 32, calls: func(ctx context.Context, s *server,
		a *attacker) error {
		return a.pour(ctx, 4<<20, 4<<20-1)
	}},
	// connections
	// the attacker's processor time alone, to compare the others with
	"nothing": {connections: 8, opens: func(ctx context.Context, _ *server) error {
		begins()
		for ctx.Err() == nil {
		}
		return ctx.Err()
	}},
	"silent connections": {connections: 300, opens: func(ctx context.Context, s *server) error {
		return silent(ctx, s, elsewhere)
	}},
	"handshakes":           {user: member, connections: 16, opens: handshakes(member)},
	"foreign handshakes":   {connections: 16, opens: handshakes("")},
	"half handshakes":      {connections: 300, opens: halfHandshake},
	"slow handshakes":      {connections: 300, opens: slowHandshake},
	"connections too many": {user: member, connections: 64, opens: waiting(member)},
}

// unread makes calls and reads no answer.
func unread(procedure string, question protobuf.Message) func(f *frames) error {
	return func(f *frames) error {
		id, err := f.begin(procedure)
		if err == nil {
			err = f.WriteData(id, true, envelope(0, question))
		}
		return err
	}
}

// pour opens a stream and sends the first bytes of a message of a size, as many as it can if first is 0; then it waits
// until the server ends the stream.
func (a *attacker) pour(ctx context.Context, size uint32, first int) error {
	in, out := io.Pipe()
	defer in.Close()
	r, err := http.NewRequestWithContext(ctx, "POST", a.server.url()+wire.FederationAnswerProcedure, in)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/grpc")
	go func() {
		_, err := out.Write(binary.BigEndian.AppendUint32([]byte{0}, size))
		for n := 0; err == nil && (first == 0 || n < first); n += len(zeros) {
			begins()
			_, err = out.Write(zeros[:cmp.Or(min(len(zeros), max(0, first-n)), len(zeros))])
		}
	}()
	answer, err := a.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// open opens a connection from an address of this machine.
func open(ctx context.Context, s *server, from string) (net.Conn, error) {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", s.address)
}

// elsewhere is the address of attackers without a certificate.
const elsewhere = "127.0.0.2"

// untilClosed reads until the other side closes the connection, or ctx ends.
func untilClosed(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	for b := make([]byte, 1024); ; {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

// silent opens a connection and says nothing.
func silent(ctx context.Context, s *server, from string) error {
	c, err := open(ctx, s, from)
	if err == nil {
		begins()
		untilClosed(ctx, c)
	}
	return err
}

// handshakes opens a connection with a certificate and closes it after the handshake.
func handshakes(user string) func(context.Context, *server) error {
	return func(_ context.Context, s *server) error {
		c, err := s.dial(s.tls(s.at("certs"), user), elsewhere)
		if err == nil {
			begins()
			c.Close()
		}
		return err
	}
}

// waiting opens a connection with a certificate and says nothing.
func waiting(user string) func(context.Context, *server) error {
	return func(ctx context.Context, s *server) error {
		c, err := s.dial(s.tls(s.at("certs"), user), elsewhere)
		if err == nil {
			begins()
			untilClosed(ctx, c)
		}
		return err
	}
}

// hello returns the first bytes of a TLS connection.
var hello = sync.OnceValue(func() []byte {
	here, there := net.Pipe()
	go tls.Client(here, &tls.Config{ServerName: "localhost", NextProtos: []string{"h2"}}).Handshake()
	b := make([]byte, 4096)
	n, _ := there.Read(b)
	there.Close()
	return b[:n]
})

// halfHandshake begins a handshake, so that the server computes its part, and says nothing more.
func halfHandshake(ctx context.Context, s *server) error {
	c, err := open(ctx, s, elsewhere)
	if err == nil {
		begins()
		c.Write(hello())
		untilClosed(ctx, c)
	}
	return err
}

// slowHandshake sends a byte of a handshake every 100 ms.
func slowHandshake(ctx context.Context, s *server) error {
	c, err := open(ctx, s, elsewhere)
	if err != nil {
		return err
	}
	begins()
	go func() {
		for _, b := range hello() {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			busytest.Delay(100 * time.Millisecond)
		}
	}()
	untilClosed(ctx, c)
	return nil
}

// pour repeats a flood until ctx ends.
func (x flood) pour(ctx context.Context, s *server) {
	var all sync.WaitGroup
	for range x.connections {
		all.Go(func() {
			for ; ctx.Err() == nil; busytest.Delay(time.Millisecond) {
				x.once(ctx, s)
			}
		})
	}
	all.Wait()
}

// once is one connection of a flood.
func (x flood) once(ctx context.Context, s *server) {
	switch {
	case x.opens != nil:
		x.opens(ctx, s)
	case x.frames != nil:
		f, err := s.frames(x.user, !x.deaf)
		if err == nil {
			begins()
		}
		if x.deaf && err == nil {
			defer context.AfterFunc(ctx, func() { f.Close() })()
		}
		for err == nil && ctx.Err() == nil {
			err = x.frames(f)
		}
		if f != nil {
			f.Close()
		}
	default:
		a := s.attacker(x.user)
		var err error
		for err == nil && ctx.Err() == nil {
			err = x.calls(ctx, s, a)
		}
		a.CloseIdleConnections()
	}
}

// flooder is the variable that makes this program an attacker in a process of its own: the name of a flood.
const flooder = "PROMPTFED_TEST_FLOODER"

// runFlooder sends the flood that the variables name.
func runFlooder() {
	s := &server{t: new(testing.T), dir: os.Getenv(flooder + "_DIR"), address: os.Getenv(flooder + "_ADDRESS")}
	json.Unmarshal([]byte(os.Getenv(flooder+"_TERMS")), &s.terms)
	name := os.Getenv(flooder)
	floods[name].pour(context.Background(), s)
}

// attack starts the process of a flood, with the lowest priority.
func (s *server) attack(name string) *process {
	s.t.Helper()
	terms, err := json.Marshal(s.terms)
	if err != nil {
		s.t.Fatal(err)
	}
	return launch(s.t, "env", flooder+"="+name, flooder+"_DIR="+s.dir, flooder+"_ADDRESS="+s.address,
		flooder+"_TERMS="+string(terms), "nice", "-n", "19", os.Args[0])
}

// newPeak returns the largest resident memory of the server since the last call, in MB.
func (s *server) newPeak() int {
	s.t.Helper()
	most := s.mostMemory() / 1e6
	os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Process.Pid), []byte("5"), 0)
	return most
}

// flooded starts a server with 20 clients that train for ever. Its quorum are these 20: rounds wait for them beyond the
// deadline.
func flooded(t *testing.T) *server {
	t.Helper()
	folder := t.TempDir() + "/certs"
	call(t, "certs", folder, "--clients", fmt.Sprint(floodClients+1))
	t.Setenv("GOGC", "25") // the memory of the server is little more than what it uses
	s := serveWith(t, folder, 1<<20, "--set", fmt.Sprintf("partition.clients=%d", floodClients), "--wait",
		fmt.Sprint(attackers), "--deadline", "5s", "--quorum", "0.95")
	t.Setenv("GOGC", "")
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for k := range attackers {
		all.Go(func() {
			s.join(ctx, part{client: k, waits: func(ctx context.Context, _ message.Instruction) error {
				return wait.For(ctx, 50*time.Millisecond)
			}})
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	if _, err := s.attacker(member).enter(ctx); err != nil {
		t.Fatal(err)
	}
	s.says(fmt.Sprint(silence, attackers)) // its patience is used up
	return s
}

// One attacker with valid certificates, or without, sends one thing as fast as it can, on as many connections as it
// gets. The rounds of 20 clients continue and count all of them, the server needs little more memory, and the log stays
// short. Without PROMPTFED_TEST_SOAK, a third of the floods runs, half as long.
func TestFloods(t *testing.T) {
	s := flooded(t)
	calm, long := 1, 3 // rounds without an attack, and under it
	if busytest.Soak() {
		calm, long = 3, 6
	}
	for place, name := range slices.Sorted(maps.Keys(floods)) {
		if !busytest.Part(place, 3) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s.newPeak()
			s.recorded(len(s.records()) + calm)
			memory := s.newPeak()
			p := s.attack(name)
			p.says("the attack begins")
			lines := strings.Count(s.log.String(), "\n")
			s.recorded(len(s.records()) + long)
			most := s.newPeak()
			if p.Ended() {
				t.Fatal("the attacker ended: " + p.log.String())
			}
			p.Kill()
			lines = strings.Count(s.log.String(), "\n") - lines
			t.Logf("%d MB before, %d MB at most; %d lines in %d rounds", memory, most, lines, long)
			if most > memory+96 {
				t.Error("the server takes more memory")
			}
			if lines > 100+10*long {
				t.Error("the log is long")
			}
		})
	}
	for _, r := range s.records() {
		if !slices.Equal(r.Clients, upTo(attackers)) && r.Seconds < 5 { // no deadline was over
			t.Fatalf("round %d counts clients %v", r.Round, r.Clients)
		}
	}
	s.noPieces()
}

func upTo(n int) (out []int) {
	for k := range n {
		out = append(out, k)
	}
	return out
}
