package attack

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/tools/e2e/proctest"
)

// operator runs the NATS servers between serve and its clients, and carries messages from one to the other.
type operator struct {
	t               *testing.T
	server, clients *nats.Conn
	mu              sync.Mutex
	seen            map[string]int // requests by their subject
	// instead answers the n-th request at a subject, from 1, in place of the server, and reports whether it did.
	instead func(m *nats.Msg, n int) bool
}

// operate starts two stock NATS servers, one for serve and one for its clients.
func operate(t *testing.T) (o *operator, server, clients string) {
	t.Helper()
	o = &operator{t: t, seen: map[string]int{}}
	open := func() (*nats.Conn, string) {
		address := proctest.FreeAddress(t, "127.0.0.1")
		host, port, _ := strings.Cut(address, ":")
		launch(t, programs.NATS, "-a", host, "-p", port).says("Server is ready")
		nc, err := nats.Connect("nats://" + address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc, "nats://" + address
	}
	o.server, server = open()
	o.clients, clients = open()
	carry := func(from, to *nats.Conn, subject string, but func(*nats.Msg) bool) {
		_, err := from.Subscribe(subject, func(m *nats.Msg) {
			if !but(m) {
				to.PublishMsg(m)
			}
		})
		if err == nil {
			err = from.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	carry(o.server, o.clients, "pf.default.to.>", func(m *nats.Msg) bool { return strings.HasSuffix(m.Subject, ".op") })
	carry(o.clients, o.server, "pf.default.from.>", func(m *nats.Msg) bool {
		o.mu.Lock()
		o.seen[m.Subject]++
		n := o.seen[m.Subject]
		o.mu.Unlock()
		return o.instead(m, n)
	})
	return o, server, clients
}

// ask lets the server of the run answer a request, and returns its answer, which is a refusal.
func (o *operator) ask(client int, verb string, request []byte) []byte {
	inbox := fmt.Sprintf("pf.default.to.%d.op", client)
	sub, err := o.server.SubscribeSync(inbox)
	if err == nil {
		defer sub.Unsubscribe()
		err = o.server.PublishRequest(fmt.Sprintf("pf.default.from.%d.%s", client, verb), inbox, request)
	}
	var m *nats.Msg
	if err == nil {
		m, err = sub.NextMsg(10 * time.Second)
	}
	if err != nil {
		o.t.Error(err)
		return nil
	}
	if !strings.Contains(string(m.Data), `"re`) { // reason, or refused
		o.t.Errorf("the server does not refuse: %.300q", m.Data)
	}
	return m.Data
}

// The operator of a NATS server can collect refusals that the server signed. None of them ends a client that did not
// request it: not an old one, not one of a request that was altered in transit, and not one for another client.
func TestReplayedRefusal(t *testing.T) {
	t.Parallel()
	s := openTrial(t)
	o, server, clients := operate(t)
	var old []byte
	tricks := map[string]bool{}
	play := func(trick string, to *nats.Msg, answer []byte) bool {
		tricks[trick] = true
		if err := o.clients.Publish(to.Reply, answer); err != nil {
			t.Error(err)
		}
		return true
	}
	o.instead = func(m *nats.Msg, n int) bool {
		switch verb, mine := strings.CutPrefix(m.Subject, "pf.default.from.0."); {
		case !mine:
		case verb == "hello" && n == 1:
			return play("of a client that the run does not have", m, o.ask(7, verb, m.Data))
		case verb == "join" && n == 1:
			return play("of yesterday", m, old)
		case verb == "join" && n == 2:
			damaged := append([]byte{}, m.Data...)
			damaged[len(damaged)-1] ^= 1 // of the signature; the nonce stays
			return play("of an altered request", m, o.ask(0, verb, damaged))
		case verb == "join" && n == 3:
			return play("of another client", m, o.ask(1, verb, m.Data))
		}
		return false
	}
	s.process = launch(t, programs.Promptfed, "serve", s.at("attack.yaml"), "--out", s.at("out"), "--nats", server)
	s.says("waiting for clients")
	old = o.ask(0, "join", []byte("let me in"))
	join := func(client string) *process {
		return launch(t, programs.Promptfed, "join", clients, "--client", client, "--config", s.at("attack.yaml"),
			"--partition", "--state", s.at("client-"+client))
	}
	client, other := join("0"), join("1")
	s.ended()
	client.ended()
	other.ended()
	if len(tricks) != 4 {
		t.Errorf("only %v were tried", tricks)
	}
	if n := strings.Count(client.log.String(), "the answer belongs to another request"); n != 4 {
		t.Errorf("the client tells of %d answers that it dropped", n)
	}
}
