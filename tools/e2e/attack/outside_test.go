package attack

import (
	"crypto/tls"
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

	"connectrpc.com/connect"
	"golang.org/x/net/http2"

	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Nobody without a certificate, with one of another authority or with one that is not a client's or the status user's
// can connect.
func TestCertificates(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	call(t, "certs", s.at("other"), "--clients", "3")
	for _, c := range []struct{ folder, name string }{{"certs", ""}, {"other", "client-0"}, {"other", "server"},
		{"other", "status"}, {"certs", "worker"}, {"certs", "server"}} {
		if _, err := s.connect(s.tls(s.at(c.folder), c.name)); err == nil {
			t.Errorf("the server accepts %q of %s", c.name, c.folder)
		}
	}
	old := s.tls(s.at("certs"), "client-0")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, err := s.connect(old); err == nil {
		t.Error("the server accepts TLS 1.2")
	}
	if c, err := net.Dial("tcp", s.address); err != nil { // HTTP/2 without TLS
		t.Error(err)
	} else if c.Write([]byte(http2.ClientPreface)); !cut(t, c) {
		t.Error("the server keeps a connection without TLS")
	}
	s.joins(0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// Guesses of the token are slow and cause few lines of the log. A client with the right token connects at once, also
// from the same address.
func TestGuesses(t *testing.T) {
	t.Parallel()
	s := serve(t, 1, "--token", "secret")
	s.says("insecure: encrypted, but no certificate")
	var tried atomic.Int64
	var all sync.WaitGroup
	ctx, began := busytest.Context(t), time.Now()
	for range 20 {
		all.Go(func() {
			for range 4 {
				a := s.stranger("client-0")
				a.token = "guess"
				_, err := a.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
				a.CloseIdleConnections()
				if err == nil {
					t.Error("a guess is accepted")
				} else if connect.CodeOf(err) == connect.CodeUnauthenticated {
					tried.Add(1)
				}
			}
		})
	}
	all.Wait()
	ended := time.Now()
	if n, took := tried.Load(), ended.Sub(began); n != 80 || took < 2*time.Second { // 20 at a time, half a second each
		t.Errorf("%d guesses in %v", n, took)
	}
	if n := strings.Count(s.log.String(), "refused"); n == 0 || n > 20 { // one line in five seconds
		t.Errorf("%d lines of %d guesses", n, tried.Load())
	}
	s.joins(0, 1, 2) // from the same address, with the right token
	counted(t, s.ends(), 0, 1, 2)
}

// Many connections of one client, and silent ones, keep nobody else out.
func TestConnections(t *testing.T) {
	s := serve(t, 1)
	open := 0
	for range 40 {
		if _, err := s.connect(s.tls(s.at("certs"), "client-0")); err == nil {
			open++
		}
	}
	if open == 0 || open > 10 {
		t.Errorf("%d connections of one client", open)
	}
	for range 200 {
		c, err := net.Dial("tcp", s.address)
		goldentest.NoError(t, err)
		defer c.Close()
	}
	s.background(part{client: 1})
	s.background(part{client: 2})
	s.says("msg=joined client=1")
	s.says("msg=joined client=2")
}

// Silent connections leave a server with few open files what its run needs, and are closed: the run completes with
// checkpoints.
func TestIdleConnections(t *testing.T) {
	t.Setenv(filesLimit, "160")
	s := serve(t, 60)
	s.hold(1)
	s.joins(0, 1, 2)
	s.runs()
	for i := range 300 {
		c, err := net.Dial("tcp", s.address)
		goldentest.NoError(t, err)
		defer c.Close()
		if i < 299 {
			continue
		}
		s.hold(30)
		s.recorded(30)
		if !cut(t, c) {
			t.Error("a silent connection stays open")
		}
	}
	s.hold(0)
	s.ends()
	if log := s.log.String(); strings.Contains(log, "too many open files") {
		t.Error("the server ran out of files")
	}
}

// The server reports a port in use.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	out, err := exec.CommandContext(busytest.Context(t), programs.Promptfed, "serve", s.at("attack.yaml"), "--out",
		s.at("second"), "--listen", s.address, "--tls", s.at("certs")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "address already in use") {
		t.Errorf("%v, %s", err, out)
	}
}

// Only the owner can read secrets in the folders of server and certificates, and the key of the authority is in
// neither.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	s.joins(0, 1, 2)
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
