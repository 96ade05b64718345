package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// flood is a permitted message that an attacker sends as fast as it can.
type flood struct {
	user    string // of its certificate
	subject string
	reply   string
	data    []byte
}

var question = []byte(`{"nonce":"00000000000000000000000000000000"}`)

// floods are those of a run with N clients, of which the last one is the attacker. Client N has a certificate of the
// same authority, as in a run with more clients.
func floods(n int) map[string]flood {
	user, from, to := certs.UserOf(n-1), fmt.Sprintf("pf.default.from.%d.", n-1), fmt.Sprintf("pf.default.to.%d.x", n-1)
	return map[string]flood{
		"status": {certs.StatusUser, "pf.default.status", "pf.default.to.status.x", nil},
		"hello with number N": {certs.UserOf(n), fmt.Sprintf("pf.default.from.%d.hello", n),
			fmt.Sprintf("pf.default.to.%d.x", n), question},
		"hello":       {user, from + "hello", to, question},
		"old hello":   {user, fmt.Sprintf("pf.default.hello.%d", n-1), fmt.Sprintf("_INBOX_client-%d.x", n-1), nil},
		"replies":     {user, from + "reply", to, make([]byte, 200)},
		"heartbeats":  {user, from + "beat", to, make([]byte, 200)},
		"presence":    {user: user},
		"connections": {},
	}
}

// send sends the flood, and reconnects, until the process is killed.
func (f flood) send(s *server) {
	for ; ; time.Sleep(10 * time.Millisecond) {
		nc, err := nats.Connect("tls://"+s.address, nats.Secure(s.tls(s.at("certs"), f.user)), nats.NoReconnect(),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			continue
		}
		for nc.IsConnected() {
			nc.PublishRequest(f.subject, f.reply, f.data)
		}
	}
}

// unsteady is a member that fails at everything, or never answers.
type unsteady struct{ silent bool }

func (unsteady) Joined(protocol.JoinReply) error    { return nil }
func (unsteady) Accepts(protocol.Instruction) error { return nil }
func (u unsteady) Execute(ctx context.Context, _ *exchange.Client, j *exchange.ActiveInstruction) (
	*exchange.PreparedReply, error) {
	if u.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return exchange.PrepareReply(j, message.Reply{}, nil, errors.New("not now"))
}

// flicker joins as a client, and says n times that it leaves and that it is back; 0 for no end.
func (s *server) flicker(ctx context.Context, client, times int, role exchange.Role) error {
	nc, inv, request, err := s.invited(ctx, part{client: client})
	if err != nil {
		return err
	}
	defer nc.Close()
	instance := subjects.NewID()
	a, err := exchange.NewClient(nc, inv, inv.Who, instance, request, role, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	go a.Run(ctx)
	time.Sleep(500 * time.Millisecond) // until it has joined
	for n := 1; (n <= times || times == 0) && ctx.Err() == nil; n++ {
		b, err := protocol.Pack(inv.Who.Signer, protocol.HeartbeatMessage, protocol.Heartbeat{Run: inv.Run,
			Client: client, Instance: instance, Count: int64(1000 + n), Doing: exchange.Idle, Leaves: n%2 == 1}, nil)
		if err != nil {
			return err
		}
		if err := nc.Publish(inv.Verb(subjects.HeartbeatVerb), b); err != nil {
			return err
		}
	}
	return nc.FlushTimeout(time.Second)
}

// flooder is the variable that makes this program an attacker in a process of its own: the name of a flood.
const flooder = "PROMPTFED_TEST_FLOODER"

// runFlooder sends the flood that the variables name.
func runFlooder() {
	s := &server{t: new(testing.T), dir: os.Getenv(flooder + "_DIR"), address: os.Getenv(flooder + "_ADDRESS")}
	json.Unmarshal([]byte(os.Getenv(flooder+"_TERMS")), &s.terms)
	switch kind := os.Getenv(flooder); kind {
	case "none": // as much work of its own
		for n := uint64(0); ; n++ {
			runtime.KeepAlive(n)
		}
	case "presence":
		for {
			s.flicker(context.Background(), len(floodClients), 0, unsteady{})
			time.Sleep(10 * time.Millisecond)
		}
	case "connections":
		s.connections(context.Background(), 300, "127.0.0.2")
		select {}
	default:
		floods(len(floodClients) + 1)[kind].send(s)
	}
}

// floodClients is the number of honest clients of TestFloodRates.
var floodClients = [20]struct{}{}

// TestFloodRates measures how much one attacker slows the rounds of 20 clients. The attacker is a process with the
// lowest priority, which starts and stops in alternation. PROMPTFED_TEST_FLOODS=1 go test -v -run TestFloodRates
// -timeout 30m ./tools/e2e/attack
func TestFloodRates(t *testing.T) {
	which := os.Getenv("PROMPTFED_TEST_FLOODS")
	if which == "" {
		t.Skip("PROMPTFED_TEST_FLOODS is not set")
	}
	n := len(floodClients) + 1
	folder := t.TempDir()
	call(t, "certs", folder+"/certs", "--clients", fmt.Sprint(n+1))
	s := serveWith(t, folder+"/certs", 1<<20, "--set", fmt.Sprintf("partition.clients=%d", n), "--wait",
		fmt.Sprint(n-1), "--deadline", "1s")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for k := range n - 1 {
		go s.join(ctx, part{client: k, pause: 100 * time.Millisecond})
	}
	s.runs()
	terms, err := json.Marshal(s.terms)
	if err != nil {
		t.Fatal(err)
	}
	rate := func(d time.Duration) float64 {
		from, began := len(s.records()), time.Now()
		time.Sleep(d)
		return float64(len(s.records())-from) / time.Since(began).Seconds()
	}
	const span = 6 * time.Second
	kinds := []string{"status", "hello with number N", "hello", "old hello", "replies", "heartbeats", "presence",
		"connections"}
	for _, kind := range kinds {
		if which != "1" && !strings.Contains(which, kind) {
			continue
		}
		var quiet, flooded []float64
		for range 3 {
			for kind, to := range map[string]*[]float64{kind: &flooded, "none": &quiet} {
				p := launch(t, "env", flooder+"="+kind, flooder+"_DIR="+s.dir, flooder+"_ADDRESS="+s.address,
					flooder+"_TERMS="+string(terms), "nice", "-n", "19", os.Args[0])
				*to = append(*to, rate(span))
				select {
				case <-p.done:
					t.Fatal("the attacker ended: " + p.log.String())
				default:
					p.kill()
				}
			}
		}
		slices.Sort(quiet)
		slices.Sort(flooded)
		t.Logf("%-20s %5.1f rounds/s without, %5.1f with: %.2f (%.1f, %.1f)", kind, quiet[1], flooded[1],
			flooded[1]/quiet[1], quiet, flooded)
	}
}
