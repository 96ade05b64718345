package attack

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"promptfed/federation/net/protocol"
)

// A client that joins, leaves and joins again all the time, and never answers, gets few instructions and causes few
// lines of the log: each note that it leaves and each request to join costs half a second of its budget.
func TestFlickering(t *testing.T) {
	t.Parallel()
	s := serve(t, 20, "--wait", "3", "--deadline", "2s")
	ctx, cancel := contextFor(time.Minute)
	began, orders, joined := time.Now(), 0, 0
	var flickering sync.WaitGroup
	flickering.Go(func() {
		a := s.attacker("client-2")
		for ctx.Err() == nil {
			x, err := a.enter(ctx)
			if err != nil {
				continue
			}
			joined++
			for m, err := x.Receive(); err == nil; m, err = x.Receive() {
				if m.GetInstruction() != nil {
					orders++
					x.send(&protocol.Leave{})
					x.CloseRequest()
				}
			}
		}
	})
	go s.join(ctx, part{client: 0})
	go s.join(ctx, part{client: 1})
	counted(t, s.ends(), 0, 1)
	cancel()
	flickering.Wait()
	most := 20 + int(2*time.Since(began).Seconds()) // of the budget
	t.Logf("it joined %d times and got %d instructions in %v", joined, orders, time.Since(began))
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
			s := serve(t, 60, "--token", "secret", "--deadline", "2s")
			s.joins(100*time.Millisecond, 0, 1, 2)
			s.runs()
			ctx, cancel := contextFor(3 * time.Second)
			defer cancel()
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					for ctx.Err() == nil {
						a := s.stranger("client-1")
						a.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
							return open(ctx, s, from)
						}
						for range 20 {
							a.Invite(ctx, &protocol.InvitationRequest{Version: protocol.Version})
						}
						a.CloseIdleConnections()
					}
				})
			}
			all.Wait()
			records := s.ends()
			if from == elsewhere {
				counted(t, records, 0, 1, 2)
			}
			counted(t, records[len(records)-5:], 0, 1, 2)
			if n := strings.Count(s.log.String(), "\n"); n > 300 {
				t.Errorf("the log has %d lines", n)
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
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for range 300 {
				go func() {
					for ctx.Err() == nil {
						silent(ctx, s, from)
					}
				}()
			}
			time.Sleep(time.Second)
			s.joins(0, 0, 1, 2)
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
	ctx, cancel := contextFor(20 * time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", `ulimit -n 120; exec "$0" "$@"`, programs.Promptfed, "serve",
		s.at("attack.yaml"), "--clients", "20", "--out", s.at("second"), "--listen", "127.0.0.1:0", "--tls",
		s.at("certs")).CombinedOutput()
	// two connections for each of 20 clients, unknown clients and the status, and 32 without a user; half of 120
	if err == nil || !strings.Contains(string(out), "20 clients need 76 connections, and the limit of open files "+
		"leaves 60; raise it to 156") {
		t.Errorf("%v, %s", err, out)
	}
}
