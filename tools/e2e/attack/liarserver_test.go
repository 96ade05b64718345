package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// liar is a server that lies: the holder of the key and the certificate of a server. It passes messages on between
// client 0, whose certificate it has too, and the real server, and adds its lies. It can also answer without the real
// server.
type liar struct {
	protocol.UnimplementedFederationHandler
	*server // the real one
	address string
	real    *attacker

	invite func() *protocol.Invitation                    // instead of the real one, if not nil
	hears  func(o *protocol.Instruction, down downstream) // called before an instruction is passed on; may be nil
	alone  atomic.Pointer[func(downstream) error]         // answers a client that joined; nil for the real server
	raw    atomic.Pointer[http.HandlerFunc]               // answers everything, without the protocol
	asked  atomic.Pointer[protocol.Join]                  // the request of client 0
	mu     sync.Mutex
	last   *protocol.Instruction // the newest of the real server
}

// downstream is the stream of client 0.
type downstream = *connect.BidiStream[protocol.ClientMessage, protocol.ServerMessage]

// lyingServer starts a server that lies to client 0 of an experiment.
func (s *server) lyingServer() *liar {
	s.t.Helper()
	p := &liar{server: s, address: busytest.Address(s.t, "127.0.0.1"), real: s.attacker("client-0")}
	conf := s.tls(s.at("certs"), "server")
	conf.NextProtos, conf.ClientCAs, conf.ClientAuth = []string{"h2"}, conf.RootCAs, tls.RequireAndVerifyClientCert
	l, err := tls.Listen("tcp", p.address, conf)
	if err != nil {
		s.t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	_, handler := protocol.NewFederationHandler(p)
	h := &http.Server{Protocols: &protocols, TLSConfig: conf, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if raw := p.raw.Load(); raw != nil {
				(*raw)(w, r)
				return
			}
			handler.ServeHTTP(w, r)
		})}
	go h.Serve(l)
	s.t.Cleanup(func() { h.Close() })
	return p
}

// join starts client 0.
func (p *liar) join() *process { return p.joinAt("https://"+p.address, 0) }

func (p *liar) Invite(ctx context.Context, r *protocol.InvitationRequest) (*protocol.Invitation, error) {
	if p.invite != nil {
		return p.invite(), nil
	}
	return p.real.Invite(ctx, r)
}

func (p *liar) Participate(ctx context.Context, down downstream) error {
	if alone := p.alone.Load(); alone != nil {
		if _, err := down.Receive(); err != nil { // the request to join
			return err
		}
		err := down.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Answer{Answer: &protocol.JoinAnswer{
			Ok: true, Accepted: p.last.Accepted, Safe: p.last.Safe, Seq: p.last.Seq}}})
		if err == nil {
			err = (*alone)(down)
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, err := p.real.Participate(ctx)
	if err != nil {
		return err
	}
	go func() { // ends with the handler
		for {
			m, err := down.Receive()
			if err != nil {
				up.CloseRequest()
				return
			}
			if m.GetJoin() != nil {
				p.asked.Store(m.GetJoin())
			}
			up.Send(m)
			if ctx.Err() != nil {
				return
			}
		}
	}()
	for {
		m, err := up.Receive()
		if err != nil {
			return err
		}
		if o := m.GetInstruction(); o != nil {
			p.mu.Lock()
			p.last = o
			p.mu.Unlock()
			if p.hears != nil {
				p.hears(o, down)
			}
		}
		if err := down.Send(m); err != nil {
			return err
		}
	}
}

// give sends client 0 an instruction.
func give(t *testing.T, down downstream, o *protocol.Instruction) {
	err := down.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Instruction{Instruction: o}})
	if err != nil {
		t.Error(err)
	}
}

// but returns a changed instruction with the identity of its new content.
func but(o *protocol.Instruction, change func(o *protocol.Instruction)) *protocol.Instruction {
	o = protobuf.CloneOf(o)
	change(o)
	o.Id = protocol.IdentityOf(o)
	return o
}

// with returns an instruction with other tensors.
func with(o *protocol.Instruction, body []byte) *protocol.Instruction {
	return but(o, func(o *protocol.Instruction) {
		o.Content = protocol.ContentOf(body)
		o.Content.Body = body
	})
}

// falseInstructions are instructions that a client drops, by the reason in its log. o is the newest instruction of the
// real server, first an earlier one.
func falseInstructions(o, first *protocol.Instruction) map[string]*protocol.Instruction {
	type instruction = protocol.Instruction
	damaged := protobuf.CloneOf(o)
	damaged.Id = protocol.NewID()
	end := but(o, func(o *instruction) { o.Kind = protocol.EndKind })
	forged := protobuf.CloneOf(end)
	forged.Id = o.Id
	return map[string]*instruction{
		"it belongs to run ":                     but(o, func(o *instruction) { o.Run = protocol.NewID() }),
		"it is for client 1 of 2":                but(o, func(o *instruction) { o.Client = 1 }),
		"it is for client 0 of 7":                but(o, func(o *instruction) { o.Total = 7 }),
		"round 1001 of 6":                        but(o, func(o *instruction) { o.Round = 1000 }),
		"round -4 for client 0":                  but(o, func(o *instruction) { o.Round = -5 }), // shown from 1
		`unknown kind of instruction "format"`:   but(o, func(o *instruction) { o.Kind = "format" }),
		`statistic "a\\nb"`:                      but(o, func(o *instruction) { o.Statistic = "a\nb" }),
		`evaluation set "../../x\\t"`:            but(o, func(o *instruction) { o.Set = "../../x\t" }),
		`"../../x" is not an identity`:           but(o, func(o *instruction) { o.Safe = "../../x" }),
		`"" is not an identity`:                  but(o, func(o *instruction) { o.Attempt = "" }),
		"has no record of":                       but(o, func(o *instruction) { o.Accepted = protocol.NewID() }),
		"it lacks uploads of this client":        but(o, func(o *instruction) { o.Safe, o.Accepted = "", "" }),
		`checksum "../../etc/passwd"`:            but(o, func(o *instruction) { o.Content.Sum = "../../etc/passwd" }),
		"the description of the tensors is":      but(o, func(o *instruction) { o.Content.Size = 1 << 41 }),
		"the description of the tensors (none)":  but(o, func(o *instruction) { o.Content = nil }),
		"does not match its identity":            damaged,
		"invalid number of steps -1":             but(o, func(o *instruction) { o.Steps = -1 }),
		"a newer one came before it":             first,
		"it belongs to run (end)":                but(end, func(o *instruction) { o.Run = protocol.NewID() }),
		"it is for client 1 of 2 (end)":          but(end, func(o *instruction) { o.Client = 1 }),
		"does not match its identity (end)":      forged,
		"it lacks uploads of this client (end)":  but(end, func(o *instruction) { o.Safe, o.Accepted = "", "" }),
		"a newer one came before it (older end)": but(end, func(o *instruction) { o.Seq = first.Seq }),
	}
}

// unasked are messages of a server, beside instructions, that a client did not ask for and ignores.
func unasked() []*protocol.ServerMessage {
	return []*protocol.ServerMessage{{},
		{Kind: &protocol.ServerMessage_Answer{Answer: &protocol.JoinAnswer{Reason: "go away"}}},
		{Kind: &protocol.ServerMessage_Receipt{Receipt: &protocol.Receipt{Id: protocol.NewID(), Attempt: "x"}}},
		{Kind: &protocol.ServerMessage_Fetch{Fetch: &protocol.Fetch{Sum: "../../x", Offset: math.MaxUint64}}},
		{Kind: &protocol.ServerMessage_Chunk{Chunk: &protocol.Chunk{Sum: "../../x", Data: make([]byte, 64<<10)}}}}
}

// A client drops false instructions of a server and counts them, with the reason. Neither they nor other unexpected
// messages change what the client learns.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	s := openReal(t)
	p := s.lyingServer()
	clients := []*process{p.join(), s.joinReal(1)} // they wait for the server
	dropped := func(c *process) []string {
		return slices.DeleteFunc(strings.Split(strings.ReplaceAll(c.log.String(), `\"`, `"`), "\n"),
			func(line string) bool { return !strings.Contains(line, "an instruction is dropped") })
	}
	type turn struct {
		o, first *protocol.Instruction
		down     downstream
	}
	turns, over := make(chan turn), make(chan struct{})
	safe := 0
	var first *protocol.Instruction
	p.hears = func(o *protocol.Instruction, down downstream) {
		if first == nil {
			first = o
		}
		if o.Safe != "" {
			safe++
		}
		if safe >= 2 { // before, the client knows no checkpoint of the server
			select {
			case turns <- turn{o, first, down}:
				<-over
			case <-over:
			}
		}
	}
	lie := func(o, first *protocol.Instruction, down downstream) (told int) {
		defer close(over)
		large := but(o, func(o *protocol.Instruction) {
			o.Content, o.Seq = &protocol.Content{Size: 1 << 30, Sum: o.Content.Sum}, o.Seq-1
		})
		give(t, down, large) // the client answers with the flag that it would need
		clients[0].says("too large: 1073741824 bytes; at most 67108864 are taken (join --largest)")
		for _, m := range unasked() {
			if err := down.Send(m); err != nil {
				t.Error(err)
			}
		}
		for say, lie := range falseInstructions(o, first) {
			told++
			short, _, _ := strings.Cut(say, " (")
			before := len(dropped(clients[0]))
			give(t, down, lie)
			clients[0].until("a dropped instruction", func() bool { return len(dropped(clients[0])) > before })
			if lines := dropped(clients[0])[before:]; len(lines) > 1 || !strings.Contains(lines[0], short) {
				t.Errorf("client 0 does not say %q: %q", short, lines)
			}
		}
		return told
	}
	s.serveReal()
	told := 0
	select {
	case x := <-turns:
		told = lie(x.o, x.first, x.down)
	case <-busytest.Hung(t):
		t.Fatal("client 0 gets no instruction")
	}
	s.ended()
	for _, c := range clients {
		c.ended()
	}
	s.sameAsRun()
	if n := len(dropped(clients[0])); told < 23 || n != told {
		t.Errorf("%d of %d lies were counted", n, told)
	}
	if n := len(dropped(clients[1])); n > 0 {
		t.Errorf("client 1 dropped %d instructions", n)
	}
}

// While the real server is dead, the holder of its key can keep a client busy and do nothing else: with damaged
// tensors, chunks that do not fit or do not come, names that are paths, invalid numbers, storms of instructions, and
// bytes that are no messages. When the real server is back, the client continues from its state.
func TestLyingServerAlone(t *testing.T) {
	t.Parallel()
	s := openReal(t)
	p := s.lyingServer()
	s.serveReal()
	killed := make(chan struct{})
	p.hears = func(o *protocol.Instruction, _ downstream) {
		if o.Round == 3 { // the run does not end before the real server is killed
			<-killed
		}
	}
	clients := []*process{p.join(), s.joinReal(1)}
	s.recorded(2)
	came, done := make(chan downstream), make(chan struct{})
	alone := func(down downstream) error {
		select {
		case came <- down:
			<-done
		case <-done:
		}
		return errors.New("the end of this server")
	}
	p.alone.Store(&alone)
	s.kill()
	close(killed)
	select {
	case down := <-came:
		p.lieAlone(down, clients[0])
		close(done)
	case <-busytest.Hung(t):
		t.Fatal("client 0 does not come back")
	}
	garbage := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Write([]byte("\x00\x00\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff"))
	})
	var endless http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Write([]byte("\x00\xff\xff\xff\xff"))
		for b := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
	calls := make(chan time.Time, 1000)
	counting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- time.Now()
		garbage(w, r)
	})
	p.raw.Store(&counting)
	clients[0].until("five calls", func() bool { return len(calls) >= 5 })
	p.raw.Store(&endless)
	for last := <-calls; len(calls) > 0; {
		next := <-calls
		if d := next.Sub(last); d < 500*time.Millisecond {
			t.Errorf("client 0 calls again after %v", d)
		}
		last = next
	}
	most := 0
	busytest.Until(t, "the end of a client that reads such a message", func() bool {
		most = max(most, clients[0].mostMemory())
		return clients[0].over()
	})
	ended := clients[0].log.String()
	if !strings.Contains(ended, "too large: the server's message has more bytes than this client accepts (join") {
		t.Error("client 0 does not say why it ends")
	}
	if most > 600e6 {
		t.Errorf("client 0 took %d MB", most/1e6)
	} else {
		t.Logf("client 0 took %d MB", most/1e6)
	}
	p.raw.Store(nil)
	p.alone.Store(nil)
	clients[0] = p.join()
	s.serveReal("--resume")
	s.ended()
	for _, c := range clients {
		c.ended()
	}
	s.sameAsRun()
	if exists(s.at("x")) || !strings.Contains(ended, "it lacks uploads of this client") {
		t.Error("the client followed a path, or does not say that it was to forget all")
	}
}

// lieAlone sends lies to client 0, which joined.
func (p *liar) lieAlone(down downstream, client *process) {
	t := p.t
	said := make(chan *protocol.ClientMessage, 1024)
	go func() {
		for {
			m, err := down.Receive()
			if err != nil {
				return
			}
			said <- m
		}
	}()
	p.mu.Lock()
	order := p.last
	p.mu.Unlock()
	next := func(o *protocol.Instruction) *protocol.Instruction {
		o = but(o, func(o *protocol.Instruction) { o.Seq, o.Attempt = time.Now().UnixNano(), protocol.NewID() })
		give(t, down, o)
		return o
	}
	answers := func(what, text string) (asked int) {
		for {
			select {
			case m := <-said:
				if m.GetFetch() != nil {
					asked++
				} else if r := m.GetReply(); r.GetError() != "" && strings.Contains(r.Error, text) {
					return asked
				}
			case <-busytest.Hung(t):
				t.Fatalf("%s: client 0 does not answer %q", what, text)
			}
		}
	}
	encode := func(m tensor.Map) []byte {
		b, err := message.EncodeTensors(m)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	next(with(order, encode(tensor.Map{"../../x": tensor.Scalar(1)})))
	answers("a path for a name", "a name has letters")
	next(with(order, []byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}")))
	answers("a bomb", "")
	nan := tensor.New(4, 8)
	nan.Data[7] = float32(math.NaN())
	next(with(order, encode(tensor.Map{"shared/global": nan})))
	answers("NaN", "NaN")
	damaged := with(order, encode(tensor.Map{"shared/global": tensor.New(4, 512)}))
	damaged.Content.Body[len(damaged.Content.Body)-1] ^= 1
	next(damaged)
	answers("damaged tensors", "the tensors are damaged")
	const size = 1 << 20
	large := func() *protocol.Instruction { // each one differs, because a client repeats its answer to the same one
		return next(but(order, func(o *protocol.Instruction) {
			o.Content = &protocol.Content{Size: size, Sum: protocol.Checksum([]byte(protocol.NewID()))}
		}))
	}
	chunk := func(sum string, offset uint64, n int) {
		err := down.Send(&protocol.ServerMessage{Kind: &protocol.ServerMessage_Chunk{Chunk: &protocol.Chunk{Sum: sum,
			Offset: offset, Data: make([]byte, n)}}})
		if err != nil {
			t.Error(err)
		}
	}
	o := large()
	for range 3 { // chunks of other tensors
		for at := 0; at < size; at += 64 << 10 {
			chunk(o.Content.Sum, uint64(at), 64<<10)
		}
	}
	if asked := answers("chunks of other tensors", "the tensors are damaged"); asked > 3 {
		t.Errorf("client 0 asks %d times", asked)
	}
	o = large()
	for range 200 { // chunks that do not fit
		chunk(o.Content.Sum, 0, size+1)
		chunk(o.Content.Sum, 1<<63, 64<<10)
		chunk(o.Content.Sum, math.MaxUint64, 64<<10)
		chunk(protocol.NewID(), 0, 64<<10)
	}
	file := p.at("client-0", "order-"+o.Content.Sum)
	client.until("the file of chunks", func() bool { return exists(file) })
	if st, err := os.Stat(file); err != nil || st.Size() > size {
		t.Errorf("the file of chunks: %v, %v", st, err)
	}
	large() // its chunks never come
	for i := range 300 {
		next(but(order, func(o *protocol.Instruction) { o.Steps = int64(i + 1) }))
	}
	next(but(order, func(o *protocol.Instruction) { o.Safe, o.Accepted = "", "" }))
	client.says("it lacks uploads of this client")
}

// A client that gets an invitation with a YAML bomb, no YAML, unknown keys or local paths, of another release, or with
// impossible numbers ends with one line, before it opens anything.
func TestHostileInvitation(t *testing.T) {
	t.Parallel()
	s := &server{t: t, dir: t.TempDir(), address: busytest.Address(t, "127.0.0.1")}
	call(t, "certs", s.at("certs"), "--clients", "2")
	p := s.lyingServer()
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9),
			", "))
	}
	config := func(text string) func(*protocol.Invitation) {
		return func(i *protocol.Invitation) { i.Config = []byte(text) }
	}
	for say, change := range map[string]func(*protocol.Invitation){
		"excessive aliasing":           config(bomb),
		"exceeded max depth":           config(strings.Repeat("[", 500000)),
		"which is a path":              config("backbones: [../../etc/passwd]"),
		"the server's configuration: ": config("method: ["),
		"the server's configuration:":  config("nothing: 1"),
		"use the same release":         func(i *protocol.Invitation) { i.Version = 7 },
		"invitation is invalid":        func(i *protocol.Invitation) { i.Run = "../../x" },
		"is invalid":                   func(i *protocol.Invitation) { i.Clients = 0 },
		"invalid":                      func(i *protocol.Invitation) { i.InlineLimit = 0 },
	} {
		p.invite = func() *protocol.Invitation {
			i := &protocol.Invitation{Version: protocol.Version, Run: protocol.NewID(), Clients: 2, InlineLimit: 1000}
			change(i)
			return i
		}
		line := refuses(t, "join", "https://"+p.address, "--client", "0", "--tls", s.at("certs"), "--set",
			"data.set=synthetic", "--state", s.at("state"))
		if !strings.Contains(line, say) || len(line) > 2000 {
			t.Errorf("%q: %.2000s", say, line)
		}
	}
}
