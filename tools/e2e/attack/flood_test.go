package attack

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport/subjects"
)

// cutOff sends until the connection is closed.
func (f flood) cutOff(t *testing.T, nc *nats.Conn) (sent int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); nc.IsConnected(); sent++ {
		nc.PublishRequest(f.subject, f.reply, f.data)
		if time.Now().After(end) {
			t.Fatalf("it is not cut off after %d messages", sent)
		}
	}
	return sent
}

// The server disconnects clients that flood it, with permitted or forbidden messages. They get few answers, and the run
// completes with the other clients. The budget of a user (exchange.Budget) has 20 requests at once, or 200 for the
// status, and refills by a tenth of that per second; the server looks for floods four times a second. It asks an
// unknown client to join again once a second.
func TestFloods(t *testing.T) {
	folder := t.TempDir() + "/certs"
	call(t, "certs", folder, "--clients", "4")
	for name, most := range map[string]int64{"status": 400, "hello": 100, "hello with number N": 100, "old hello": 0,
		"replies": 20, "heartbeats": 20} {
		t.Run(name, func(t *testing.T) {
			f := floods(3)[name]
			s := serveWith(t, folder, 10, "--wait", "2")
			s.joins(100*time.Millisecond, 0, 1)
			s.runs()
			nc, _ := s.intruder(f.user)
			heard, err := nc.SubscribeSync(f.reply[:strings.LastIndexByte(f.reply, '.')] + ".>")
			if err != nil {
				t.Fatal(err)
			}
			sent := f.cutOff(t, nc)
			if n, _ := heard.Delivered(); n > most {
				t.Errorf("%d of %d messages were answered", n, sent)
			} else if n, _, _ := heard.Pending(); int64(n) > most {
				t.Errorf("%d of %d messages were answered", n, sent)
			}
			s.says("sends more than it may")
			counted(t, s.ends(), 0, 1)
			if n := strings.Count(s.log.String(), "\n"); n > 150 {
				t.Errorf("the log has %d lines", n)
			}
		})
	}
}

// A client that repeatedly says that it leaves and that it is back, and never answers, gets no instruction more often
// than a client that stays, and causes few lines of the log.
func TestFlickering(t *testing.T) {
	t.Parallel()
	s := serve(t, 20, "--wait", "3", "--deadline", "2s")
	nc, _ := s.intruder("client-2")
	var mu sync.Mutex
	orders, most := map[any]int{}, 0
	if _, err := nc.Subscribe("pf.default.to.2.order", func(m *nats.Msg) {
		if o, err := parse(m.Data); err == nil {
			mu.Lock()
			defer mu.Unlock()
			orders[o.header["id"]]++
			most = max(most, orders[o.header["id"]])
		}
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextFor(time.Minute)
	defer cancel()
	go s.join(ctx, part{client: 0})
	go s.join(ctx, part{client: 1})
	if err := s.flicker(ctx, 2, 3001, unsteady{silent: true}); err != nil {
		t.Log(err) // the server disconnected it
	}
	counted(t, s.ends(), 0, 1)
	// of 20 changes at once and two more per second; and that its process ends
	if n := strings.Count(s.log.String(), "leaves"); n == 0 || n > 60 {
		t.Errorf("the log says %d times that it leaves", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(orders) == 0 || most > 5 { // once more in 2 s, after 1.5 s
		t.Errorf("an order was sent %d times", most)
	}
}

// If clients have only a token, anybody can be client 1. A client that floods the server under this name loses only its
// own connection: others with the name stay, and may connect.
func TestTokenFlood(t *testing.T) {
	t.Parallel()
	s := serve(t, 40, "--token", "secret")
	s.joins(100*time.Millisecond, 0, 1, 2)
	s.runs()
	as1 := func() *nats.Conn {
		t.Helper()
		nc, err := nats.Connect("nats://"+s.address, nats.UserInfo("client-1", "secret"), nats.NoReconnect(),
			nats.CustomInboxPrefix(subjects.InboxOf("default", 1)), nats.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	quiet := as1()
	for range 3 {
		floods(2)["replies"].cutOff(t, as1())
	}
	if !quiet.IsConnected() {
		t.Error("another connection was cut as well")
	}
	as1()
	counted(t, s.ends(), 0, 1, 2)
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
			s.connections(ctx, 300, from)
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

// connections opens silent connections as fast as they are closed.
func (s *server) connections(ctx context.Context, count int, from string) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range count {
		go func() {
			for ctx.Err() == nil {
				c, err := d.DialContext(ctx, "tcp", s.address)
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				for b := make([]byte, 1024); err == nil; {
					_, err = c.Read(b)
				}
				c.Close()
				stop()
			}
		}()
	}
}
