package attack

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A client without a certificate, with one of another authority or with one that is not a client's, cannot do anything.
// The holder of the certificate of client 0 is client 0.
func TestCertificates(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	call(t, "certs", s.at("other"), "--clients", "3")
	for _, c := range []struct{ folder, name string }{{"certs", ""}, {"other", "client-0"}, {"other", "server"},
		{"certs", "worker"}, {"certs", "server"}} {
		nc, err := nats.Connect("tls://"+s.address, nats.Secure(s.tls(s.at(c.folder), c.name)),
			nats.UserInfo("client-0", ""), nats.NoReconnect())
		if err == nil {
			nc.Close()
			t.Errorf("%s of %s was let in", c.name, c.folder)
		}
	}
	nc, denied := s.intruder("client-0", nats.UserInfo("client-1", ""))
	denies(t, nc, denied, "pf.default.from.1.reply")
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// Guessing tokens is slow and causes few lines of the log. A client with the right token connects at once, also from
// the same address.
func TestGuesses(t *testing.T) {
	t.Parallel()
	s := serve(t, 1, "--token", "secret")
	s.says("nothing is encrypted")
	var tried atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 20 {
		all.Go(func() {
			for time.Now().Before(end) {
				nc, err := nats.Connect("nats://"+s.address, nats.UserInfo("client-0", "guess"), nats.NoReconnect())
				if err == nil {
					nc.Close()
					t.Error("a guess was let in")
				}
				tried.Add(1)
			}
		})
	}
	all.Wait()
	if n := strings.Count(s.log.String(), "refused"); n == 0 || n > 3 {
		t.Errorf("%d lines of %d guesses", n, tried.Load())
	}
	s.joins(0, 0, 1, 2) // from the same address, with the right token
	counted(t, s.ends(), 0, 1, 2)
}

// Many connections of one client, and silent ones, keep nobody else out.
func TestConnections(t *testing.T) {
	s := serve(t, 1)
	open := 0
	for range 40 {
		nc, err := nats.Connect("tls://"+s.address, nats.Secure(s.tls(s.at("certs"), "client-0")), nats.NoReconnect())
		if err != nil {
			continue
		}
		defer nc.Close()
		open++
	}
	if open == 0 || open > 10 {
		t.Errorf("%d connections of one client", open)
	}
	for range 200 {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ctx, cancel := contextFor(30 * time.Second)
	defer cancel()
	for _, k := range []int{1, 2} {
		go s.join(ctx, part{client: k})
	}
	s.says("msg=joined client=1")
	s.says("msg=joined client=2")
}

// Silent connections leave a server with few open files what its run needs, and are closed: the run completes with
// checkpoints.
func TestIdleConnections(t *testing.T) {
	t.Setenv(filesLimit, "160")
	s := serve(t, 60)
	s.joins(0, 1, 2)
	s.background(part{pause: 100 * time.Millisecond})
	s.runs()
	for range 300 {
		c, err := net.DialTimeout("tcp", s.address, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	s.ends()
	if log := s.log.String(); strings.Contains(log, "too many open files") {
		t.Error("the server ran out of files")
	}
}

// The server reports a port in use at once.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	began := time.Now()
	out, err := exec.Command(programs.Promptfed, "serve", s.at("attack.yaml"), "--out", s.at("second"), "--listen",
		s.address,
		"--tls", s.at("certs")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "address already in use") || time.Since(began) > 5*time.Second {
		t.Errorf("after %v: %v, %s", time.Since(began), err, out)
	}
}

// Only the owner can read secrets in the folders of server and certificates, and the key of the authority is in
// neither.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	s.joins(0, 0, 1, 2)
	s.ends()
	seen := 0
	for _, dir := range []string{s.at("out", "hub"), s.at("out", "checkpoint"), s.at("client-1"), s.at("certs"),
		s.at("certs-authority")} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			seen++
			secret := !strings.HasPrefix(dir, s.at("certs")) || strings.HasSuffix(path, "-key.pem")
			if e.IsDir() && info.Mode().Perm() != 0o700 || !e.IsDir() && secret && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if seen < 15 {
		t.Errorf("only %d files were looked at", seen)
	}
	if _, err := os.Stat(s.at("certs", "ca-key.pem")); err == nil {
		t.Error("the authority's key is where serve reads its own")
	}
}
