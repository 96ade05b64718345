package attack

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// encodedAs is a message of tensors with a header made by hand.
func encodedAs(header string, data int) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, data)...)
}

// bombs are tensors of about n bytes that no instruction requests, by the error of the server.
func bombs(n int) map[string][]byte {
	one := func(dtype string, count, size int) []byte {
		return encodedAs(fmt.Sprintf(`{"shared/ctx":{"dtype":%q,"shape":[%d],"data_offsets":[0,%d]}}`, dtype, count,
			count*size), count*size)
	}
	var names strings.Builder
	for i := 0; names.Len() < n; i++ {
		fmt.Fprintf(&names, `,"%06d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`, i)
	}
	all := map[string][]byte{"small elements": one("U8", n, 1), "many names": encodedAs("{"+names.String()[1:]+"}", 0)}
	if busytest.Soak() {
		all["many elements"] = one("F32", n/4, 4)
		all["long header"] = encodedAs("{"+strings.Repeat(" ", n)+"}", 0)
		all["many axes"] = encodedAs(`{"shared/ctx":{"dtype":"F32","shape":[1`+strings.Repeat(",1", n/2)+
			`],"data_offsets":[0,4]}}`, 4)
	}
	return all
}

// bomber holds the certificate of a client and answers each instruction with the same tensors: in the message, or
// announced and then in parts, whether the server reads them or not.
type bomber struct {
	receipts atomic.Int64
	done     chan struct{} // closed when the server is gone
}

// bomb starts a bomber, which joins with a request.
func (s *server) bomb(a *attacker, join *wire.JoinCall, body []byte, inline bool) *bomber {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	x, err := a.open(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	join = protobuf.CloneOf(join)
	join.Run, join.Instance = x.run, x.instance
	joins := func() (bool, error) {
		answer, err := x.Join(ctx, join)
		return err == nil && answer.Later == "", err
	}
	s.until("a bomber that joins", func() bool {
		joined, err := joins()
		if err != nil {
			s.t.Fatal(err)
		}
		return joined
	})
	b := &bomber{done: make(chan struct{})}
	content := wire.ContentOf(body)
	parts := slices.Collect(slices.Chunk(body, wire.PartSize))
	if inline {
		content.Body, parts = body, nil
	}
	// The server closes the connections of a client that sends too much. This one comes back until the server ends, and
	// leaves its allowance time to grow.
	returns := func() bool {
		for !s.Ended() && ctx.Err() == nil {
			busytest.Delay(500 * time.Millisecond)
			if joined, _ := joins(); joined {
				return true
			}
		}
		return false
	}
	go func() {
		defer close(b.done)
		for {
			o, err := x.next(ctx)
			if err != nil && !returns() {
				return
			} else if err != nil {
				continue
			}
			r, more := &wire.Reply{Id: o.Id, Attempt: o.Attempt, Examples: 10, Loss: 1, Content: content}, parts
			if o.Kind == wire.EndKind {
				r.Content, more = wire.ContentOf(encodedAs("{}      ", 0)), nil
				r.Content.Body = encodedAs("{}      ", 0)
			}
			for x.reply(ctx, r, more...) != nil { // a reply that was cut is sent again
				if !returns() {
					return
				}
			}
			b.receipts.Add(1)
		}
	}()
	return b
}

// received returns how many answers the server received until its end.
func (b *bomber) received(t *testing.T) int64 {
	t.Helper()
	select {
	case <-b.done:
	case <-busytest.Hung(t):
		t.Fatal("the calls do not end")
	}
	return b.receipts.Load()
}

// peak returns a function that returns the peak memory of the server so far, in bytes, also after its end.
func (s *server) peak() func() int {
	var most atomic.Int64
	look := func() int {
		if n := s.mostMemory(); n > 0 {
			most.Store(int64(n))
		}
		return int(most.Load())
	}
	look()
	go func() {
		for !s.Ended() {
			busytest.Delay(5 * time.Millisecond)
			look()
		}
	}()
	return look
}

// compressed makes a client upload as Compress does.
func compressed(t *testing.T) func(part) part {
	m := methodtest.Build(t, "promptfl", []string{"compress"}, map[string]any{"tokens": 4})
	return func(p part) part {
		var sent tensor.Map
		p.sees = func(o message.Instruction) { sent = o.Shared }
		p.lie = func(r *message.Reply) {
			if err := m.Codec().Pack(&method.Local{Received: sent, State: tensor.Map{}}, &r.Upload); err != nil {
				t.Error(err)
			}
		}
		return p
	}
}

// The server refuses a client that answers each instruction with 60 MB in parts, or with 2 MB in a message, that no
// instruction requests, before it stores or decodes any of it. The server needs no more memory than without this
// client, except for messages in transit, and the rounds count the others. An instruction requests 1.5 kB, and less
// with compression.
func TestMemory(t *testing.T) {
	type setting struct {
		name      string
		flags     []string
		client    func(part) part
		clients   int
		attackers int
	}
	plain := func(p part) part { return p }
	settings := []setting{{"plain", nil, plain, 3, 1},
		{"compressed", []string{"--set", "with=[compress]"}, compressed(t), 3, 1},
		{"many", []string{"--set", "partition.clients=9", "--quorum", "0.3"}, plain, 9, 6}}
	t.Setenv("GOGC", "25") // the memory of a server is little more than what it uses
	most := func(t *testing.T, x setting, inline bool, body []byte) int {
		folder, flags := t.TempDir()+"/certs", x.flags
		call(t, "certs", folder, "--clients", fmt.Sprint(x.clients))
		if inline {
			flags = append(flags, "--limit", fmt.Sprint(4<<20))
		}
		address := busytest.Address(t, "127.0.0.1")
		s := serveAt(t, address, folder, 3, append([]string{"--listen", address, "--deadline", "0"}, flags...)...)
		peak := s.peak()
		first := 0
		var sent []*bomber
		if body != nil {
			first = x.attackers
			for k := range x.attackers {
				sent = append(sent, s.bomb(s.attacker(certs.UserOf(k)), s.joinRequest(""), body, inline))
			}
		}
		var honest []int
		for k := first; k < x.clients; k++ {
			s.background(x.client(part{client: k}))
			honest = append(honest, k)
		}
		records := s.ends()
		counted(t, records, honest...)
		for _, b := range sent {
			if n := b.received(t); n < 3 {
				t.Errorf("the server received %d answers in three rounds", n)
			}
		}
		for _, r := range records {
			if len(r.Refused) < len(sent) {
				t.Errorf("round %d refused %+v", r.Round, r.Refused)
			}
		}
		return peak()
	}
	for _, x := range settings {
		for _, inline := range []bool{false, true} {
			size := 60_000_000
			if inline {
				size = 2_000_000
			}
			base := most(t, x, inline, nil)
			for name, body := range bombs(size) {
				if x.name == "many" && name != "small elements" && name != "many names" {
					continue
				}
				t.Run(fmt.Sprint(x.name, " ", name, " ", inline), func(t *testing.T) {
					got := most(t, x, inline, body)
					t.Logf("%d MB, %d MB without an attacker", got/1e6, base/1e6)
					if got > base+64e6 {
						t.Error("the server took more")
					}
				})
			}
		}
	}
}

// Under secure aggregation the server knows the sizes of messages of each step too. Clients are promptfed join; the
// first is killed, and another program with its certificate and its request to join answers.
func TestMemoryMasked(t *testing.T) {
	t.Setenv("GOGC", "25")
	most := func(body []byte) int {
		s := &server{t: t, dir: t.TempDir(), address: busytest.Address(t, "127.0.0.1"), rounds: 3}
		call(t, "convert", "../../../models/bundle/converted/testdata/huggingface", "--out", s.at("bundle"))
		err := os.WriteFile(s.at("attack.yaml"), []byte(strings.ReplaceAll(secureConfig, "DIR", s.dir)), 0o644)
		goldentest.NoError(t, err)
		call(t, "certs", s.at("certs"), "--clients", "5")
		s.process = launch(t, programs.Promptfed, "serve", s.at("attack.yaml"), "--out", s.at("out"), "--listen",
			s.address, "--tls", s.at("certs"), "--quorum", "0.5", "--deadline", "0")
		s.says("waiting for clients")
		peak := s.peak()
		between := s.lyingServer() // it hears the request of client 0
		first := between.join()
		first.says("joined")
		var b *bomber
		if body != nil {
			first.Kill()
			b = s.bomb(s.attacker("client-0"), between.asked.Load(), body, false)
		}
		for k := 1; k < 5; k++ {
			s.joinReal(k)
		}
		for _, r := range s.ends() {
			if clients := fmt.Sprint(r.Clients); body == nil && clients != "[0 1 2 3 4]" ||
				body != nil && (clients != "[1 2 3 4]" || len(r.Refused) == 0) {
				t.Errorf("round %d counts clients %v and refused %+v", r.Round, r.Clients, r.Refused)
			}
		}
		if b != nil && b.received(t) < 3 {
			t.Errorf("%d answers in three rounds", b.receipts.Load())
		}
		return peak()
	}
	base := most(nil)
	for name, body := range bombs(60_000_000) {
		got := most(body)
		t.Logf("%s: %d MB, %d MB without an attacker", name, got/1e6, base/1e6)
		if got > base+64e6 {
			t.Errorf("%s: the server took %d MB", name, got/1e6)
		}
	}
}
