package transport_test

import (
	"context"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport"
)

// foreign starts a NATS server that knows nothing of promptfed.
func foreign(t testing.TB, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("no server")
	}
	return s
}

// once does something in the middle of a client's first training of a round.
type once struct {
	transport.Local
	round int
	done  *atomic.Bool
	do    func()
}

func (o once) Answer(ctx context.Context, order message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	if order.Kind == message.Train && order.Round == o.round && o.done.CompareAndSwap(false, true) {
		o.do()
	}
	return o.Local.Answer(ctx, order, s)
}

// A NATS server of somebody else's does, and when it goes away in the middle of a round and comes back, server and
// clients go on.
func TestForeignServerRestarts(t *testing.T) {
	want, _ := simulated(t, fedpha.toy(t), false)
	s := newSite(t, fedpha.toy(t))
	n := foreign(t, server.RANDOM_PORT)
	defer func() { n.Shutdown() }()
	u, err := url.Parse(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	s.url = n.ClientURL()
	if s.conn, err = transport.Dial(context.Background(), s.url, "hub", s.log.logger()); err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	var done atomic.Bool
	s.part = func(_ int, p transport.Local) transport.Part {
		return once{p, 1, &done, func() {
			n.Shutdown()
			n.WaitForShutdown()
			n = foreign(t, port)
		}}
	}
	s.run()
	if !done.Load() || s.learned() != want {
		t.Error("other bytes than in one process")
	}
}
