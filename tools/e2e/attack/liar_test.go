package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/federation/transport"
	"promptfed/federation/transport/subjects"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%s: %v, %v", dir, list, err)
	}
}

// learned fails unless every shared parameter moved by a given amount from its initial value, which is near 0.
func (s *server) learned(move float64) {
	s.t.Helper()
	m, _, err := safetensors.ReadFile(s.at("out", record.PromptsFile))
	if err != nil {
		s.t.Fatal(err)
	}
	shared := m.WithoutPrefix("shared")
	for _, name := range shared.Names() {
		for i, v := range shared[name].Data {
			if !(math.Abs(float64(v)-move) < 0.2) { // initial values have a standard deviation of 0.02
				s.t.Fatalf("%s: element %d is %v, not about %v", name, i, v, move)
			}
		}
	}
}

// Invalid uploads of one client affect only that client: the two others continue under the default limits, and the
// rounds average the two, which move by one per round. Record, report and log name the client and the reason.
func TestLies(t *testing.T) {
	shared := func(value float32) func(r *message.Reply) {
		return func(r *message.Reply) { r.Upload.Shared["ctx"].Data[0] = value }
	}
	more := func(r *message.Reply) { r.Upload.Shared["more"] = tensor.New(1 << 20) }
	for _, c := range []struct {
		say   string
		lie   func(r *message.Reply)
		flags []string
	}{
		{"NaN", shared(float32(math.NaN())), nil},
		{"joined with 10", func(r *message.Reply) { r.Upload.N = 11 }, nil},
		{"9223372036854775807 examples", func(r *message.Reply) { r.Upload.N = math.MaxInt }, nil},
		{"-1 examples", func(r *message.Reply) { r.Upload.N = -1 }, nil},
		{"ctx holds 1e+30", shared(1e30), nil},
		{"an update with a norm of 1e+05", shared(1e5), nil}, // honest ones have the length sqrt(4*512) = 45
		{"changed the parameters by the norm 1e+05", shared(1e5), []string{"--max-norm", "1000"}},
		{"loss 1e+300", func(r *message.Reply) { r.Stats.Loss = 1e300 }, nil},
		{"the tensor \\\"extra/more\\\" is not among those that were asked for",
			func(r *message.Reply) { r.Upload.Extra = tensor.Map{"more": tensor.Scalar(1)} }, nil},
		{"the tensor \\\"shared/more\\\"", func(r *message.Reply) { r.Upload.Shared["more"] = tensor.Scalar(1) }, nil},
		{"at most 8500 are accepted", more, []string{"--largest", "8500"}},
		// 4*512*4 bytes of ctx, 64 of eight numbers about the terms of the loss, and a header of 8 and 520
		{"at most 8784 are accepted", more, nil},
	} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, c.flags...)
			s.joins(0, 1, 2)
			s.background(part{lie: c.lie})
			records := s.ends()
			counted(t, records, 1, 2)
			if log := s.log.String(); !strings.Contains(log, c.say) ||
				!strings.Contains(log, "client 0: 3 of its replies were refused") {
				t.Errorf("the server does not say %q, or its report has no word of it", c.say)
			}
			for _, r := range records {
				if len(r.Refused) != 1 || r.Refused[0].Client != 0 || len(r.Cut) > 0 {
					t.Errorf("the record of round %d has %+v", r.Round, r.Limited)
				}
			}
			s.learned(3)
			empty(t, s.at("out", "hub", "pieces"))
		})
	}
}

// Two of three clients upload huge values from the first round on, before earlier rounds show what is usual: the round
// counts only the third.
func TestLiesOfTwo(t *testing.T) {
	t.Parallel()
	s := serve(t, 3, "--quorum", "0.3")
	s.joins(0, 2)
	for client := range 2 {
		s.background(part{client: client, lie: func(r *message.Reply) { r.Upload.Shared["ctx"].Data[0] = 6e5 }})
	}
	records := s.ends()
	counted(t, records, 2)
	if log := s.log.String(); !strings.Contains(log, "50 times that of the parameters") {
		t.Error("the server does not say what was refused")
	}
	s.learned(3)
}

// The server drops and counts invalid messages in the name of a client, signed with its key, with another key or not at
// all: replies of other runs, instructions, clients and formats, join requests of others, heartbeats that are repeated
// or from the future, and pieces without an announcement. The rounds count all three clients.
func TestLyingClient(t *testing.T) {
	t.Parallel()
	s := serve(t, 30)
	nc, _ := s.intruder("client-0", nats.CustomInboxPrefix(subjects.InboxOf("default", 0)))
	key := s.tls(s.at("certs"), "client-0").Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	stranger := s.tls(s.at("certs"), "status").Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	var mu sync.Mutex
	sent, orders := 0, 0
	say := func(verb string, b []byte) {
		nc.Publish("pf.default.from.0."+verb, b)
		sent++
	}
	_, err := nc.Subscribe("pf.default.to.0.order", func(m *nats.Msg) {
		o, err := parse(m.Data)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if orders++; orders > 10 {
			return
		}
		h := o.header
		r := parsed{version: o.version, header: map[string]any{"run": h["run"], "id": h["id"], "try": h["try"],
			"client": 0, "n": 10, "loss": 1}}.with(o.body)
		for _, x := range []parsed{r.but("run", random()), r.but("client", 1), r.but("client", -1), r.but("also", 1),
			r.but("loss", "NaN"), r.but("n", json.Number("1e400")), r.but("size", "all")} {
			say("reply", x.signed(t, "reply", key))
		}
		say("reply", r.signed(t, "order", key))
		say("reply", r.signed(t, "reply", stranger))
		say("reply", r.signed(t, "reply", nil))
		b := parsed{version: o.version, header: map[string]any{"run": h["run"], "client": 0, "instance": random(),
			"count": 1, "leaves": true}}
		for _, x := range []parsed{b.but("client", 1), b.but("run", random()), b.but("count", "many")} {
			say("beat", x.signed(t, "beat", key))
		}
		say("beat", b.signed(t, "beat", stranger))
		say("beat", b.signed(t, "beat", key)) // not counted: of a process that did not join
		say("part", []byte(`{"sum":"../../x","piece":-1}`))
		say("put", make([]byte, 39))
		say("put", make([]byte, 100<<10))
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.joins(50*time.Millisecond, 0, 1, 2)
	s.runs()
	for end, n := time.Now().Add(20*time.Second), 0; n < 10 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		mu.Lock()
		n = orders
		mu.Unlock()
	}
	time.Sleep(200 * time.Millisecond)
	status, err := s.status()
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if n := status.Dropped + status.Late; n < int64(sent*9/10) || sent < 150 {
		t.Errorf("%d of %d lies were counted", n, sent)
	}
	mu.Unlock()
	counted(t, s.ends(), 0, 1, 2)
	s.learned(float64(s.rounds))
	empty(t, s.at("out", "hub", "pieces"))
}

// The server refuses a join request that the key of a client signed for another client or with invalid numbers. The
// client itself can still join.
func TestLyingJoinRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, 2)
	nc, _ := s.intruder("client-0", nats.CustomInboxPrefix(subjects.InboxOf("default", 0)))
	conf := s.tls(s.at("certs"), "client-0")
	key := conf.Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	ask := func(verb string, b []byte) parsed {
		t.Helper()
		m, err := nc.Request("pf.default.from.0."+verb, b, 5*time.Second)
		if err != nil {
			t.Fatal(verb, err)
		}
		a, err := parse(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	hello := ask("hello", []byte(`{"nonce":"`+random()+`"}`))
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	other := s.tls(s.at("certs"), "client-1").Certificates[0]
	proof := map[string]any{"key": public, "chain": conf.Certificates[0].Certificate}
	request := parsed{version: hello.version, header: map[string]any{"run": hello.header["run"], "instance": random(),
		"nonce": random(), "client": 0, "examples": 10, "backbone": "b", "tokens": "t", "terms": s.terms,
		"member": message.Participant{Task: method.ClientSpec{Backbone: "echo", Width: 512, Dim: 512}}, "proof": proof}}
	strange := s.terms
	strange.Method = "fedpha"
	for say, c := range map[string]struct {
		request parsed
		key     *ecdsa.PrivateKey
	}{
		"the request to join comes from client 1": {request.but("client", 1), key},
		"the server started another run":          {request.but("run", random()), key},
		"examples to train on":                    {request.but("examples", -5), key},
		"cannot unmarshal number":                 {request.but("examples", json.Number("9223372036854775808")), key},
		"unknown field":                           {request.but("also", 1), key},
		"belongs to \"client-1\", not to": {request.but("proof", map[string]any{"key": public,
			"chain": other.Certificate}), key},
		"the signature does not belong to": {request, other.PrivateKey.(*ecdsa.PrivateKey)},
		"the key does not belong to": {request.but("proof", map[string]any{"key": []byte("x"),
			"chain": conf.Certificates[0].Certificate}), key},
		"method: the server has": {request.but("terms", strange), key},
	} {
		v := ask("join", c.request.signed(t, "join", c.key))
		if v.header["ok"] == true || !strings.Contains(fmt.Sprint(v.header["reason"]), say) {
			t.Errorf("%q: %v", say, v.header)
		}
	}
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// The server does not believe a client that moves in the other direction and claims a thousand million examples. A
// client that claims more than any data set has cannot join. One with 15 times the examples of the others counts as
// twice the two together: the average moves by (10 + 10 - 40)/60 per round.
func TestClaims(t *testing.T) {
	back := func(r *message.Reply) {
		for _, t := range r.Upload.Shared {
			for i := range t.Data {
				t.Data[i] -= 2
			}
		}
	}
	for _, c := range []struct {
		claims int
		say    string
		move   float64
	}{{1e9, "half of all clients have 10 or fewer", 3}, {1<<53 + 1, "must be 1 to 9007199254740992", 3},
		{math.MaxInt, "must be 1 to 9007199254740992", 3}, {-1, "-1 examples to train on", 3},
		{150, "claimed=150 counted=40", -1}} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			var flags []string
			kept := !strings.Contains("must be 1 to 9007199254740992, -1 examples to train on", c.say)
			if !kept { // the run need not wait for it
				flags = []string{"--wait", "2"}
			}
			s := serve(t, 3, flags...)
			s.background(part{claims: c.claims, lie: back})
			if s.joins(0, 1); !kept {
				s.says("refused to join")
			}
			s.joins(0, 2)
			for _, r := range s.ends() {
				if want := c.claims == 150; (len(r.Cut) == 1) != want ||
					want && r.Cut[0] != (message.CappedUpload{Client: 0, Claimed: 150, Counted: 40}) {
					t.Errorf("the record of round %d has %+v", r.Round, r.Limited)
				}
			}
			if !strings.Contains(s.log.String(), c.say) {
				t.Errorf("the server does not say %q", c.say)
			}
			s.learned(c.move)
		})
	}
}

// The status shows how many examples a client claims, how many count, and why its last reply was refused.
func TestStatusOfLiar(t *testing.T) {
	s := serve(t, 40)
	s.joins(100*time.Millisecond, 1, 2)
	s.background(part{claims: 150, pause: 100 * time.Millisecond, lie: func(r *message.Reply) {
		if r.Upload.Shared["ctx"].Data[0] > 2 {
			r.Stats.Loss = 1e300
		}
	}})
	nc, _ := s.intruder("status", nats.CustomInboxPrefix(subjects.StatusInbox("default")))
	ctx, cancel := contextFor(20 * time.Second)
	defer cancel()
	for ; ; time.Sleep(50 * time.Millisecond) {
		status, err := transport.AskStatus(ctx, nc, "default")
		if err != nil {
			t.Fatal(err)
		}
		c := status.Clients[0]
		if c.Examples == 150 && c.Counted == 40 && strings.Contains(c.Reason, "the loss 1e+300") {
			break
		}
	}
}
