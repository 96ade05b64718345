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

	"promptfed/federation/engine"
	"promptfed/federation/method"
	"promptfed/federation/transport"
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

// moved fails unless every round moved the shared parameters by one, from values near 0.
func moved(t *testing.T, s *server) {
	t.Helper()
	m, _, err := safetensors.ReadFile(s.at("out", engine.PromptsFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range m.Under("shared") {
		for i, v := range x.Data {
			if math.Abs(float64(v)-float64(s.rounds)) > 1 {
				t.Fatalf("%s: element %d is %v after %d rounds", name, i, v, s.rounds)
			}
		}
	}
}

// A client that uploads what none should fails alone: of three clients the two others go on, with a quorum of 0.8, and
// their rounds have the average of two.
func TestLies(t *testing.T) {
	for say, lie := range map[string]func(r *engine.Reply){
		"NaN":                     func(r *engine.Reply) { r.Upload.Shared["ctx"].Data[0] = float32(math.NaN()) },
		"joined with 10":          func(r *engine.Reply) { r.Upload.N = math.MaxInt },
		"moved the parameters by": func(r *engine.Reply) { r.Upload.Shared["ctx"].Data[0] = 1e30 },
		"another experiment":      func(r *engine.Reply) { r.Upload.Shared["more"] = tensor.Scalar(1) },
		"at most 1000000 are taken": func(r *engine.Reply) {
			r.Upload.Shared["more"] = tensor.New(1 << 20)
		},
	} {
		t.Run(say, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, "--max-norm", "1000", "--largest", "1000000")
			s.joins(0, 1, 2)
			s.background(part{client: 0, lie: lie})
			counted(t, s.ends(), 1, 2)
			if !strings.Contains(s.log.String(), say) {
				t.Errorf("the server does not say %q", say)
			}
			moved(t, s)
			empty(t, s.at("out", "hub", "pieces"))
		})
	}
}

// What the holder of a client's certificate sends beside that client, signed with its key, with that of another or with
// none, is dropped and counted: replies of other runs, orders, clients and forms, cards of others, signs of life that
// were there before or come from the future, pieces of what nobody announced. The rounds count all three clients.
func TestLyingClient(t *testing.T) {
	t.Parallel()
	s := serve(t, 30)
	nc, _ := s.intruder("client-0", nats.CustomInboxPrefix(transport.InboxOf("default", 0)))
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
		r := message{version: o.version, header: map[string]any{"run": h["run"], "id": h["id"], "try": h["try"],
			"client": 0, "n": 10, "loss": 1}}.with(o.body)
		for _, x := range []message{r.but("run", random()), r.but("client", 1), r.but("client", -1), r.but("n", -1),
			r.but("size", -1), r.but("steps", -1), r.but("also", 1), r.but("id", "../../x"), r.but("loss", "NaN"),
			r.but("n", json.Number("1e400")), r.but("object", "../../x")} {
			say("reply", x.signed(t, "reply", key))
		}
		say("reply", r.signed(t, "order", key))
		say("reply", r.signed(t, "reply", stranger))
		say("reply", r.signed(t, "reply", nil))
		b := message{version: o.version, header: map[string]any{"run": h["run"], "client": 0, "instance": random(),
			"count": 1, "leaves": true}}
		for _, x := range []message{b.but("client", 1), b.but("run", random()), b.but("count", "many")} {
			say("beat", x.signed(t, "beat", key))
		}
		say("beat", b.signed(t, "beat", stranger))
		say("beat", b.signed(t, "beat", key)) // of no process that joined: not counted
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
	if status.Dropped < int64(sent*9/10) || sent < 200 {
		t.Errorf("%d of %d lies were counted", status.Dropped, sent)
	}
	mu.Unlock()
	counted(t, s.ends(), 0, 1, 2)
	moved(t, s)
	empty(t, s.at("out", "hub", "pieces"))
}

// Cards that a client's key signed and that are not its own to give, or whose numbers are none, are refused; the client
// itself joins all the same.
func TestLyingCards(t *testing.T) {
	t.Parallel()
	s := serve(t, 2)
	nc, _ := s.intruder("client-0", nats.CustomInboxPrefix(transport.InboxOf("default", 0)))
	conf := s.tls(s.at("certs"), "client-0")
	key := conf.Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	ask := func(verb string, b []byte) message {
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
	card := message{version: hello.version, header: map[string]any{"run": hello.header["run"], "instance": random(),
		"nonce": random(), "client": 0, "examples": 10, "backbone": "b", "tokens": "t", "terms": s.terms,
		"member": engine.Member{Task: method.Task{Backbone: "echo", Width: 512, Dim: 512}}, "proof": proof}}
	strange := s.terms
	strange.Method = "fedpha"
	for say, c := range map[string]struct {
		card message
		key  *ecdsa.PrivateKey
	}{
		"the card is of client 1":         {card.but("client", 1), key},
		"the server began another run":    {card.but("run", random()), key},
		"examples to train on":            {card.but("examples", -5), key},
		"cannot unmarshal number":         {card.but("examples", json.Number("9223372036854775808")), key},
		"unknown field":                   {card.but("also", 1), key},
		"is that of \"client-1\", not of": {card.but("proof", map[string]any{"key": public, "chain": other.Certificate}), key},
		"the signature is not that of":    {card, other.PrivateKey.(*ecdsa.PrivateKey)},
		"the key is not that of":          {card.but("proof", map[string]any{"key": []byte("x"), "chain": conf.Certificates[0].Certificate}), key},
		"method: the server has":          {card.but("terms", strange), key},
	} {
		v := ask("join", c.card.signed(t, "join", c.key))
		if v.header["ok"] == true || !strings.Contains(fmt.Sprint(v.header["reason"]), say) {
			t.Errorf("%q: %v", say, v.header)
		}
	}
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}
