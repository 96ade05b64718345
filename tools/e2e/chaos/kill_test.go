package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"promptfed/runtime/busytest"
)

// messages are all kinds of messages of a run, in order.
var messages = []string{
	"invitation request", "invitation", "join", "answer", "ask",
	"train instruction", "train part", "train ask", "train reply", "train reply part", "train receipt",
	"test instruction", "test part", "test ask", "test reply", "test receipt",
	"end instruction", "end part", "end reply", "end receipt",
}

// lastWords may be missing: a client that has the result and does not reach the server for 30 seconds ends without.
var lastWords = []string{"end reply", "end receipt"}

// kill is one kill -9, when a message is passed on.
type kill struct {
	event
	server bool // which side dies
	round  int  // first round in which it happens
	done   bool
}

// kills kills the server or a client of a site whenever the relay passes a message on at which it must.
type kills struct {
	*site
	mu   sync.Mutex // of the processes, too
	list []kill
}

// onMessage is the hook of the relay. A message before which a side dies is lost.
func (c *kills) onMessage(client int, what event) (drop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	round := c.rounds()
	i := slices.IndexFunc(c.list, func(k kill) bool { return !k.done && k.event == what && k.round <= round })
	if i < 0 {
		return false
	}
	k := &c.list[i]
	k.done = true
	if k.after { // the receiver has the message, and may have begun to do something
		busytest.Delay(5*time.Millisecond + drawn(c.rand, 0, 50*time.Millisecond))
	}
	if k.message == lastWords[1] { // the server that comes back waits for a client that has ended
		c.deadline = 10 * time.Second
	}
	if k.server {
		c.server.Kill()
		c.startServer("--resume")
	} else {
		c.joins[client].Kill()
		c.startJoin(client)
	}
	c.t.Logf("round %d: kill %s", round, k.text(client))
	return !k.after
}

func (k kill) text(client int) string {
	who, when := fmt.Sprint("client ", client), "before"
	if k.server {
		who = "the server"
	}
	if k.after {
		when = "after"
	}
	return fmt.Sprintf("%s %s %s", who, when, k.message)
}

// A run survives kill -9 of either side just before and just after every kind of message, and learns what it would have
// learned without. The methods have private parameters and send each client its own.
func TestKill(t *testing.T) {
	parallel(t)
	first := seed(t)
	const rounds = 3
	for n := range 4 {
		t.Run(fmt.Sprint("variant=", n), func(t *testing.T) {
			t.Parallel()
			tr := trial{method: "pfedmoap", options: "{tokens: 4, experts: 2, gating_dim: 2, heads: 1}", clients: 2,
				rounds: rounds, certificates: true, every: 1, quorum: 1, deadline: time.Hour, share: 1,
				serveFlags: []string{"--limit", "100"}}
			if n%2 == 1 {
				tr.method, tr.options, tr.config = "fedpha", options["fedpha"], "with: [fedamp]\n"
			}
			s := prepare(t, tr, first)
			s.address = busytest.Address(t, "127.0.0.1")
			s.makeCertificates()
			c := &kills{site: s}
			r := rand.New(rand.NewPCG(first, uint64(n)))
			for i, m := range messages {
				// Every combination of side and time belongs to one variant.
				k := kill{event: event{m, (n+i)%2 == 1}, server: (n+i)/2%2 == 1}
				if strings.HasPrefix(m, "train") || strings.HasPrefix(m, "test") {
					k.round = r.IntN(rounds)
				}
				c.list = append(c.list, k)
			}
			s.connect = newRelay(t, s.at("certs"), s.address, s.clients, c.onMessage).listener.Addr().String()
			c.mu.Lock()
			s.startServer()
			for k := range s.joins {
				s.startJoin(k)
			}
			c.mu.Unlock()
			c.wait()
			s.check()
		})
	}
}

// wait waits until the server and the clients end by themselves.
func (c *kills) wait() {
	busytest.Until(c.t, "the end of the run", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.over()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	for _, k := range c.list {
		switch {
		case k.done:
		case slices.Contains(lastWords, k.message):
			c.t.Logf("the clients gave up: kill %s", k.text(0))
		default:
			c.t.Errorf("no such message: kill %s", k.text(0))
		}
	}
}
