package exchange_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/transporttest"
)

// A server that ends a connection before it said anything, as one does that is killed then, is waited for.
func TestDialWaitsForAServerThatDied(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	if _, err := exchange.Dial(ctx, "nats://"+l.Addr().String(), "test",
		(&transporttest.Logs{}).Logger()); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("Dial did not wait: %v", err)
	}
}
