package attack

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
)

// A client that joins, leaves and joins again all the time, and never answers, gets few instructions and causes few
// lines of the log: each note that it leaves and each request to join costs half a second of its budget.
func TestFlickering(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := serve(t, 20, "--wait", "3")
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	orders, joined := 0, 0
	var flickering sync.WaitGroup
	flickering.Go(func() {
		a := s.attacker("client-2")
		for ctx.Err() == nil {
			x, err := a.enter(ctx)
			if err != nil {
				continue
			}
			joined++
			for _, err = x.next(ctx); err == nil; _, err = x.next(ctx) {
				orders++
				x.leave(ctx)
			}
		}
	})
	s.joins(0, 1)
	counted(t, s.ends(), 0, 1)
	cancel()
	flickering.Wait()
	ended := time.Now()
	most := 20 + int(2*ended.Sub(began).Seconds()) // of the budget, which grows with time on a busy machine too
	t.Logf("it joined %d times and got %d instructions in %v", joined, orders, ended.Sub(began))
	if orders == 0 || joined > most || orders > most+s.rounds+2 {
		t.Errorf("it joined %d times and got %d instructions; at most %d are paid for", joined, orders, most)
	}
	if n := strings.Count(s.log.String(), "leaves"); n == 0 || n > most {
		t.Errorf("the log says %d times that it leaves", n)
	}
}

// If clients have only a token, anybody with the token can use the name client-1. Others with this name and keys of
// their own, who call the server as fast as they can on many connections from another address, do not disturb the
// client: the server knows its key. From the same address they can make it connect again, but not keep it out.
func TestTokenFlood(t *testing.T) {
	for _, from := range []string{elsewhere, "127.0.0.1"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			rounds, most := 5, int64(200) // that the server counts, and calls before
			if busytest.Soak() {
				rounds, most = 15, 1000
			}
			s := serve(t, rounds, "--token", "secret")
			s.hold(1)
			s.joins(0, 1, 2)
			s.runs()
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			var calls atomic.Int64
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for ctx.Err() == nil {
						a := s.stranger("client-1")
						a.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
							return open(ctx, s, from)
						}
						for range 20 {
							a.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
							calls.Add(1)
						}
						a.CloseIdleConnections()
					}
				})
			}
			s.until("many calls", func() bool { return calls.Load() > most })
			s.hold(rounds - 2)
			s.recorded(rounds - 2) // rounds go on meanwhile
			cancel()
			all.Wait()
			s.hold(0)
			counted(t, s.ends(), 0, 1, 2)
			log := s.log.String()
			joined := strings.Count(log, "msg=joined client=1")
			lines := strings.Count(log, "\n") - joined
			t.Logf("%d calls, %d lines; client 1 joined %d times", calls.Load(), lines, joined)
			if from == elsewhere && joined > 1 {
				t.Errorf("client 1 joined %d times", joined)
			}
			if lines > 200 {
				t.Errorf("the log has %d lines about %d calls", lines, calls.Load())
			}
		})
	}
}

// Silent connections, reopened as soon as they are closed, keep no client out, not even one with the same address, and
// the server can open the files that it needs.
func TestRefilledConnections(t *testing.T) {
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		t.Run(from, func(t *testing.T) {
			t.Setenv(filesLimit, "160")
			s := serve(t, 30)
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			var closed atomic.Int64
			for range 300 {
				go func() {
					for ctx.Err() == nil {
						if silent(ctx, s, from) == nil {
							closed.Add(1)
						}
					}
				}()
			}
			s.until("600 closed connections", func() bool { return closed.Load() > 600 })
			s.joins(0, 1, 2)
			counted(t, s.ends(), 0, 1, 2)
			if log := s.log.String(); strings.Contains(log, "too many open files") {
				t.Error("the server ran out of files")
			}
		})
	}
}

// The server reports at the start a limit of open files that is too small for its clients.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	out, err := exec.CommandContext(busytest.Context(t), "sh", "-c", `ulimit -n 120; exec "$0" "$@"`,
		programs.Promptfed, "serve", s.at("attack.yaml"), "--clients", "20", "--out", s.at("second"), "--listen",
		"127.0.0.1:0", "--tls", s.at("certs")).CombinedOutput()
	// two connections for each of 20 clients, unknown clients and the status, and 32 without a user; half of 120
	if err == nil || !strings.Contains(string(out), "20 clients need 76 connections, and the limit of open files "+
		"leaves 60; raise it to 156") {
		t.Errorf("%v, %s", err, out)
	}
}
