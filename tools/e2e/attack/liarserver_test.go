package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
	"promptfed/models/synthetic"
	"promptfed/runtime/busytest"
	"promptfed/runtime/tensor"
)

// liar is a server that lies: the holder of the key and the certificate of a server. It passes messages on between
// client 0, whose certificate it has too, and the real server, and adds its lies. It can also answer without the real
// server.
type liar struct {
	wire.FederationHandler
	*server // the real one
	address string
	real    *attacker

	invite func() *wire.Invitation          // instead of the real one, if not nil
	hears  func(o *wire.Instruction)        // called before an instruction is passed on; may be nil
	lying  atomic.Bool                      // instructions are those of lies
	lies   chan []*wire.Part                // in the next call of client 0; none ends the lies
	alone  atomic.Bool                      // without the real server
	said   chan *wire.Reply                 // of client 0 to a liar that is alone
	raw    atomic.Pointer[http.HandlerFunc] // answers everything, without the protocol
	asked  atomic.Pointer[wire.JoinCall]    // the request of client 0
	last   atomic.Pointer[wire.Instruction] // the newest of the real server
}

// lyingServer starts a server that lies to client 0 of an experiment.
func (s *server) lyingServer() *liar {
	s.t.Helper()
	p := &liar{server: s, address: busytest.Address(s.t, "127.0.0.1"), real: s.attacker("client-0"),
		lies: make(chan []*wire.Part), said: make(chan *wire.Reply, 1024)}
	conf := s.tls(s.at("certs"), "server")
	conf.NextProtos, conf.ClientCAs, conf.ClientAuth = []string{"h2"}, conf.RootCAs, tls.RequireAndVerifyClientCert
	l, err := tls.Listen("tcp", p.address, conf)
	if err != nil {
		s.t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	_, handler := wire.NewFederationHandler(p)
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

func (p *liar) Invite(ctx context.Context, r *wire.InvitationRequest) (*wire.Invitation, error) {
	if p.invite != nil {
		return p.invite(), nil
	}
	return p.real.Invite(ctx, r)
}

func (p *liar) Join(ctx context.Context, j *wire.JoinCall) (*wire.JoinAnswer, error) {
	if p.asked.Store(j); p.alone.Load() {
		o := p.last.Load()
		return &wire.JoinAnswer{Accepted: o.Accepted, Safe: o.Safe}, nil
	}
	return p.real.Join(ctx, j)
}

func (p *liar) Leave(ctx context.Context, m *wrapperspb.StringValue) (*emptypb.Empty, error) {
	return p.real.Leave(ctx, m)
}

func (p *liar) Next(ctx context.Context, q *wire.Ask, down *connect.ServerStream[wire.Part]) error {
	if told, err := p.lie(ctx, down); told {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, err := p.real.Next(ctx, q)
	if err != nil {
		return err
	}
	for up.Receive() {
		part := up.Msg()
		if o := part.Instruction; o != nil {
			p.last.Store(o)
			if p.hears != nil {
				p.hears(o)
			}
			if told, err := p.lie(ctx, down); told {
				return err
			}
		}
		if err := down.Send(part); err != nil {
			return err
		}
	}
	return up.Err()
}

// lie sends a lie, if there is one to tell.
func (p *liar) lie(ctx context.Context, down *connect.ServerStream[wire.Part]) (told bool, err error) {
	for p.lying.Load() {
		select {
		case list := <-p.lies:
			if list == nil {
				p.lying.Store(false)
				if p.alone.Load() {
					return true, errors.New("the end of this server")
				}
				return false, nil
			}
			for _, part := range list {
				if err := down.Send(part); err != nil {
					return true, err
				}
			}
			return true, nil
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
	return false, nil
}

func (p *liar) Answer(ctx context.Context, down *connect.ClientStream[wire.Part]) (*emptypb.Empty, error) {
	if p.alone.Load() {
		if down.Receive() {
			p.said <- down.Msg().Reply
		}
		for down.Receive() {
		}
		return &emptypb.Empty{}, nil
	}
	up, err := p.real.Answer(ctx)
	for err == nil && down.Receive() {
		err = up.Send(down.Msg())
	}
	if up == nil {
		return nil, err
	}
	return up.CloseAndReceive()
}

// tell gives client 0 an instruction in its next call, with parts of tensors.
func (p *liar) tell(o *wire.Instruction, parts ...[]byte) {
	p.t.Helper()
	list := []*wire.Part{{Instruction: o}}
	for _, b := range parts {
		list = append(list, &wire.Part{Data: b})
	}
	p.say(list)
}

func (p *liar) say(list []*wire.Part) {
	p.t.Helper()
	select {
	case p.lies <- list:
	case <-busytest.Hung(p.t):
		p.t.Fatal("client 0 does not call")
	}
}

// but returns a changed instruction with the identity of its new content.
func but(o *wire.Instruction, change func(o *wire.Instruction)) *wire.Instruction {
	o = protobuf.CloneOf(o)
	change(o)
	o.Id = wire.IdentityOf(o)
	return o
}

// with returns an instruction with other tensors.
func with(o *wire.Instruction, body []byte) *wire.Instruction {
	return but(o, func(o *wire.Instruction) {
		o.Content = wire.ContentOf(body)
		o.Content.Body = body
	})
}

// falseInstructions are instructions that a client drops, by the reason in its log. o is the newest instruction of the
// real server, first an earlier one.
func falseInstructions(o, first *wire.Instruction) map[string]*wire.Instruction {
	type instruction = wire.Instruction
	damaged := protobuf.CloneOf(o)
	damaged.Id = wire.NewID()
	end := but(o, func(o *instruction) { o.Kind = wire.EndKind })
	forged := protobuf.CloneOf(end)
	forged.Id = o.Id
	return map[string]*instruction{
		"it belongs to run ":                     but(o, func(o *instruction) { o.Run = wire.NewID() }),
		"it is for client 1 of 2":                but(o, func(o *instruction) { o.Client = 1 }),
		"it is for client 0 of 7":                but(o, func(o *instruction) { o.Total = 7 }),
		"round 1001 of 6":                        but(o, func(o *instruction) { o.Round = 1000 }),
		"round -4 for client 0":                  but(o, func(o *instruction) { o.Round = -5 }), // shown from 1
		`unknown kind of instruction "format"`:   but(o, func(o *instruction) { o.Kind = "format" }),
		`statistic "a\\nb"`:                      but(o, func(o *instruction) { o.Statistic = "a\nb" }),
		`evaluation set "../../x\\t"`:            but(o, func(o *instruction) { o.Set = "../../x\t" }),
		`"../../x" is not an identity`:           but(o, func(o *instruction) { o.Safe = "../../x" }),
		`"" is not an identity`:                  but(o, func(o *instruction) { o.Attempt = "" }),
		"has no record of":                       but(o, func(o *instruction) { o.Accepted = wire.NewID() }),
		"it lacks uploads of this client":        but(o, func(o *instruction) { o.Safe, o.Accepted = "", "" }),
		`checksum "../../etc/passwd"`:            but(o, func(o *instruction) { o.Content.Sum = "../../etc/passwd" }),
		"the description of the tensors is":      but(o, func(o *instruction) { o.Content.Size = 1 << 41 }),
		"the description of the tensors (none)":  but(o, func(o *instruction) { o.Content = nil }),
		"does not match its identity":            damaged,
		"invalid number of steps -1":             but(o, func(o *instruction) { o.Steps = -1 }),
		"a newer one came before it":             first,
		"it belongs to run (end)":                but(end, func(o *instruction) { o.Run = wire.NewID() }),
		"it is for client 1 of 2 (end)":          but(end, func(o *instruction) { o.Client = 1 }),
		"does not match its identity (end)":      forged,
		"it lacks uploads of this client (end)":  but(end, func(o *instruction) { o.Safe, o.Accepted = "", "" }),
		"a newer one came before it (older end)": but(end, func(o *instruction) { o.Seq = first.Seq }),
	}
}

// A client drops false instructions of a server and counts them, with the reason. Neither they nor other unexpected
// parts change what the client learns.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	s := openReal(t)
	p := s.lyingServer()
	clients := []*process{p.join(), s.joinReal(1)} // they wait for the server
	dropped := func(c *process) []string {
		return slices.DeleteFunc(strings.Split(strings.ReplaceAll(c.log.String(), `\"`, `"`), "\n"),
			func(line string) bool { return !strings.Contains(line, "an instruction is dropped") })
	}
	type turn struct{ o, first *wire.Instruction }
	turns := make(chan turn, 1)
	safe := 0
	var first *wire.Instruction
	p.hears = func(o *wire.Instruction) {
		if first == nil {
			first = o
		}
		if o.Safe != "" {
			safe++
		}
		if safe == 2 { // before, the client knows no checkpoint of the server
			p.lying.Store(true)
			turns <- turn{o, first}
		}
	}
	lie := func(o, first *wire.Instruction) (told int) {
		large := but(o, func(o *wire.Instruction) {
			o.Content, o.Seq = &wire.Content{Size: 1 << 30, Sum: o.Content.Sum}, o.Seq-1
		})
		p.tell(large) // the client answers with the flag that it would need
		clients[0].says("too large: 1073741824 bytes; at most 67108864 are taken (join --largest)")
		drops := func(say string, list ...*wire.Part) {
			told++
			short, _, _ := strings.Cut(say, " (")
			before := len(dropped(clients[0]))
			p.say(list)
			clients[0].until("a dropped instruction", func() bool { return len(dropped(clients[0])) > before })
			if lines := dropped(clients[0])[before:]; len(lines) > 1 || !strings.Contains(lines[0], short) {
				t.Errorf("client 0 does not say %q: %q", short, lines)
			}
		}
		for _, part := range []*wire.Part{{}, {Data: make([]byte, 64<<10)}, {Reply: &wire.Reply{Id: o.Id}}} {
			drops("unknown kind of instruction", part)
		}
		for say, lie := range falseInstructions(o, first) {
			drops(say, &wire.Part{Instruction: lie})
		}
		p.say(nil)
		return told
	}
	s.serveReal()
	told := 0
	select {
	case x := <-turns:
		told = lie(x.o, x.first)
	case <-busytest.Hung(t):
		t.Fatal("client 0 gets no instruction")
	}
	s.ended()
	for _, c := range clients {
		c.ended()
	}
	s.sameAsRun()
	if n := len(dropped(clients[0])); told < 26 || n != told {
		t.Errorf("%d of %d lies were counted", n, told)
	}
	if n := len(dropped(clients[1])); n > 0 {
		t.Errorf("client 1 dropped %d instructions", n)
	}
}

// While the real server is dead, the holder of its key can keep a client busy and do nothing else: with damaged
// tensors, parts that do not fit or do not come, names that are paths, invalid numbers, storms of instructions, and
// bytes that are no messages. When the real server is back, the client continues from its state.
func TestLyingServerAlone(t *testing.T) {
	t.Parallel()
	s := openReal(t)
	p := s.lyingServer()
	s.serveReal()
	killed := make(chan struct{})
	p.hears = func(o *wire.Instruction) {
		if o.Round == 3 { // the run does not end before the real server is killed
			<-killed
		}
	}
	clients := []*process{p.join(), s.joinReal(1)}
	s.recorded(2)
	p.alone.Store(true)
	p.lying.Store(true)
	s.Kill()
	close(killed)
	p.lieAlone(clients[0])
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
	p.say(nil)
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
		return clients[0].Ended()
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
	p.alone.Store(false)
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

// lieAlone sends lies to client 0.
func (p *liar) lieAlone(client *process) {
	t, order := p.t, p.last.Load()
	next := func(o *wire.Instruction, parts ...[]byte) *wire.Instruction {
		o = but(o, func(o *wire.Instruction) { o.Seq, o.Attempt = time.Now().UnixNano(), wire.NewID() })
		p.tell(o, parts...)
		return o
	}
	answers := func(what, text string) {
		t.Helper()
		for {
			select {
			case r := <-p.said:
				if r.Error != "" && strings.Contains(r.Error, text) {
					return
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
	zeros := slices.Collect(slices.Chunk(make([]byte, size), wire.PartSize))
	for what, parts := range map[string][][]byte{"parts of other tensors": zeros,
		"a part of 1 MiB": {make([]byte, size)},
		"empty parts":     {zeros[0], nil}, "parts without end": slices.Repeat(zeros, 20)} {
		// each instruction differs, because a client repeats its answer to the same one
		next(but(order, func(o *wire.Instruction) {
			o.Content = &wire.Content{Size: size, Sum: wire.Checksum([]byte(wire.NewID()))}
		}), parts...)
		answers(what, "the tensors are damaged")
	}
	next(but(order, func(o *wire.Instruction) {
		o.Content = &wire.Content{Size: size, Sum: wire.Checksum(nil)}
	}), zeros[:3]...) // the others do not come
	last := order
	for i := range 300 {
		last = next(but(order, func(o *wire.Instruction) { o.Steps = int64(i + 1) }))
	}
	client.until("the answer to the last instruction", func() bool {
		for len(p.said) > 0 {
			if (<-p.said).Id == last.Id {
				return true
			}
		}
		return false
	})
	next(but(order, func(o *wire.Instruction) { o.Safe, o.Accepted = "", "" }))
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
	config := func(text string) func(*wire.Invitation) {
		return func(i *wire.Invitation) { i.Config = []byte(text) }
	}
	for say, change := range map[string]func(*wire.Invitation){
		"excessive aliasing":           config(bomb),
		"exceeded max depth":           config(strings.Repeat("[", 500000)),
		"which is a path":              config("backbones: [../../etc/passwd]"),
		"the server's configuration: ": config("method: ["),
		"the server's configuration:":  config("nothing: 1"),
		"use the same release":         func(i *wire.Invitation) { i.Version = 7 },
		"invitation is invalid":        func(i *wire.Invitation) { i.Run = "../../x" },
		"is invalid":                   func(i *wire.Invitation) { i.Clients = 0 },
		"invalid":                      func(i *wire.Invitation) { i.InlineLimit = 0 },
		// a name of two tokens, and 1 GB of text in 2^20 places
		"the server's classes and template: ": func(i *wire.Invitation) {
			i.Config = []byte("method: promptfl\ndata: {template: \"" + strings.Repeat("{}", 1<<20) + "\"}")
			i.Classes = append([]string{"x" + strings.Repeat(" ", 1000) + "y"}, synthetic.Classes()...)
		},
	} {
		p.invite = func() *wire.Invitation {
			i := &wire.Invitation{Version: wire.Version, Run: wire.NewID(), Clients: 2, InlineLimit: 1000}
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
