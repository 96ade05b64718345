package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// certs runs promptfed certs on the folder of the server.
func (s *server) certs(flags ...string) {
	s.t.Helper()
	call(s.t, append([]string{"certs", s.at("certs")}, flags...)...)
}

// background starts a client that may end in any way; stop ends it.
func (s *server) background(p part) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.join(ctx, p)
	}()
	stop = func() {
		cancel()
		<-done
	}
	s.t.Cleanup(stop)
	return stop
}

// recorded waits until a later round has these clients.
func (s *server) recorded(clients ...int) {
	s.t.Helper()
	first := len(s.records())
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, r := range s.records()[first:] {
			if fmt.Sprint(r.Clients) == fmt.Sprint(clients) {
				return
			}
		}
	}
	s.t.Fatalf("no round counts clients %v: %v", clients, s.log.String())
}

// The server disconnects a client whose certificate is revoked in the middle of a round, and does not wait for it,
// although its instruction has no deadline. With a new certificate and its old folder, the client takes part again.
func TestRevoked(t *testing.T) {
	t.Parallel()
	s := serve(t, 60, "--deadline", "0")
	first := s.background(part{client: 0, pause: 100 * time.Millisecond})
	s.joins(100*time.Millisecond, 1, 2)
	s.recorded(0, 1, 2)
	stolen := s.tls(s.at("certs"), "client-0")
	other, err := s.connect(stolen)
	if err != nil {
		t.Fatal(err)
	}
	first()
	stuck := s.background(part{client: 0, pause: time.Hour}) // it gets its instruction and never answers
	time.Sleep(3 * time.Second)
	s.certs("--revoke", "client-0")
	began := time.Now()
	s.recorded(1, 2)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the round went on after %v", took)
	}
	if !cut(other) {
		t.Error("the connection of a revoked certificate stays open")
	}
	if _, err := s.connect(stolen); err == nil {
		t.Error("a revoked certificate is accepted")
	}
	stuck()
	s.says("the certificate of client-0 is revoked")
	s.certs("--renew", "client-0")
	s.background(part{client: 0, pause: 100 * time.Millisecond})
	s.recorded(0, 1, 2)
	if _, err := s.connect(stolen); err == nil {
		t.Error("a revoked certificate is accepted once there is a new one")
	}
	s.ends()
}

// The server takes a new certificate during the run, and the run continues after the old certificate is revoked.
func TestRenewedServer(t *testing.T) {
	t.Parallel()
	s := serve(t, 25)
	s.joins(100*time.Millisecond, 0, 1, 2)
	s.recorded(0, 1, 2)
	serial := func() string {
		c, err := s.connect(s.tls(s.at("certs"), "client-0"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	old := serial()
	s.certs("--revoke", "server", "--renew", "server")
	s.cmd.Process.Signal(syscall.SIGHUP)
	s.says("the server uses the certificate in its folder now")
	if serial() == old {
		t.Error("new connections see the old certificate")
	}
	counted(t, s.ends(), 0, 1, 2)
}

// issue makes a certificate of the authority that is valid until a given time.
func (s *server) issue(name string, until time.Time) {
	s.t.Helper()
	pair, err := tls.LoadX509KeyPair(s.at("certs", "ca.pem"), s.at("certs-authority", "ca-key.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(s.at("certs", name+".pem"), s.at("certs", name+"-key.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: until.Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, pair.Leaf, own.PrivateKey.(*ecdsa.PrivateKey).Public(),
		pair.PrivateKey)
	if err == nil {
		err = os.WriteFile(s.at("certs", name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: der}), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// The server refuses an expired certificate, and disconnects a client whose certificate expires.
func TestExpired(t *testing.T) {
	t.Parallel()
	s := serve(t, 25)
	s.issue("client-0", time.Now().Add(-time.Minute))
	if _, err := s.connect(s.tls(s.at("certs"), "client-0")); err == nil {
		t.Error("an expired certificate is accepted")
	}
	s.issue("client-0", time.Now().Add(4*time.Second).Truncate(time.Second))
	other, err := s.connect(s.tls(s.at("certs"), "client-0"))
	if err != nil {
		t.Fatal(err)
	}
	s.background(part{client: 0, pause: 200 * time.Millisecond})
	s.joins(200*time.Millisecond, 1, 2)
	if !cut(other) {
		t.Error("the connection of an expired certificate stays open")
	}
	records := s.ends()
	s.says("the certificate of client-0 expired on")
	if all := fmt.Sprint(records[0].Clients, records[len(records)-1].Clients); all != "[0 1 2] [1 2]" {
		t.Errorf("the first and last rounds count %s", all)
	}
}

// The server ignores a list of revoked certificates that the authority did not sign, and an older list.
func TestRevokedList(t *testing.T) {
	t.Parallel()
	s := serve(t, 25)
	s.joins(200*time.Millisecond, 0, 1, 2)
	s.runs()
	list := s.at("certs", "revoked.pem")
	call(t, "certs", s.at("other"), "--clients", "1")
	s.certs("--revoke", "status")
	older, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	s.certs("--revoke", "worker")
	time.Sleep(2 * time.Second)
	for say, text := range map[string][]byte{"is older than list": older, "does not begin as PEM": []byte("x"),
		"did not sign it": s.foreignList()} {
		if err := os.WriteFile(list, text, 0o644); err != nil {
			t.Fatal(err)
		}
		s.says(say)
		if _, err := s.connect(s.tls(s.at("certs"), "status")); err == nil {
			t.Errorf("after a list that %s the certificate of status is accepted again", say)
		}
	}
	counted(t, s.ends(), 0, 1, 2)
	if n := strings.Count(s.log.String(), "does not begin as PEM"); n > 2 {
		t.Errorf("the log says it %d times", n)
	}
}

// foreignList is a list of another authority that revokes client 0.
func (s *server) foreignList() []byte {
	s.t.Helper()
	call(s.t, "certs", s.at("other"), "--revoke", "client-0")
	b, err := os.ReadFile(s.at("other", "revoked.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}
