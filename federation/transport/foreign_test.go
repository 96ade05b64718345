package transport_test

import (
	"context"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/transporttest"
)

// once does something in the middle of a client's first training of a round.
type once struct {
	transport.LocalExecutor
	round int
	done  *atomic.Bool
	do    func()
}

func (o once) Execute(ctx context.Context, order message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	if order.Kind == message.Train && order.Round == o.round && o.done.CompareAndSwap(false, true) {
		o.do()
	}
	return o.LocalExecutor.Execute(ctx, order, s)
}

// A NATS server of somebody else's does, and when it goes away in the middle of a round and comes back, server and
// clients go on.
func TestForeignServerRestarts(t *testing.T) {
	want, _ := simulated(t, transporttest.FedPHA.Experiment(t), false)
	s := newSite(t, transporttest.FedPHA.Experiment(t))
	n := transporttest.StartNATS(t, server.RANDOM_PORT)
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
	if s.conn, err = exchange.Dial(context.Background(), s.url, "hub", s.log.Logger()); err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	var done atomic.Bool
	s.part = func(_ int, p transport.LocalExecutor) transport.Executor {
		return once{p, 1, &done, func() {
			n.Shutdown()
			n.WaitForShutdown()
			n = transporttest.StartNATS(t, port)
		}}
	}
	s.run()
	if !done.Load() || s.learned() != want {
		t.Error("other bytes than in one process")
	}
}
