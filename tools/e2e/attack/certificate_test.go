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

	"promptfed/federation/engine/message"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
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

// The server disconnects a client whose certificate is revoked in the middle of a round, and does not wait for it,
// although its instruction has no deadline. With a new certificate and its old folder, the client takes part again.
func TestRevoked(t *testing.T) {
	t.Parallel()
	s := serve(t, 6, "--deadline", "0")
	s.hold(1)
	first := s.background(part{client: 0})
	s.joins(1, 2)
	counted(t, s.recorded(1), 0, 1, 2)
	stolen := s.tls(s.at("certs"), "client-0")
	other, err := s.connect(stolen)
	goldentest.NoError(t, err)
	first()
	got := make(chan bool, 100)
	stuck := s.background(part{client: 0, waits: func(ctx context.Context, o message.Instruction) error {
		got <- true
		return never(ctx, o)
	}})
	select {
	case <-got:
	case <-busytest.Hung(t):
		t.Fatal("client 0 got no instruction in its second process")
	}
	s.hold(2)
	s.certs("--revoke", "client-0")
	counted(t, s.recorded(2)[1:], 1, 2)
	if !cut(t, other) {
		t.Error("the connection of a revoked certificate stays open")
	}
	if _, err := s.connect(stolen); err == nil {
		t.Error("a revoked certificate is accepted")
	}
	stuck()
	s.says("the certificate of client-0 is revoked")
	s.certs("--renew", "client-0")
	s.background(part{client: 0})
	s.until("client 0 joining again", func() bool { return strings.Count(s.log.String(), "msg=joined client=0") == 3 })
	if _, err := s.connect(stolen); err == nil {
		t.Error("a revoked certificate is accepted once there is a new one")
	}
	s.hold(0)
	counted(t, s.ends()[3:], 0, 1, 2) // the third round began without it
}

// The server takes a new certificate during the run, and the run continues after the old certificate is revoked.
func TestRenewedServer(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	s.hold(1)
	s.joins(0, 1, 2)
	s.runs()
	serial := func() string {
		c, err := s.connect(s.tls(s.at("certs"), "client-0"))
		goldentest.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	old := serial()
	s.certs("--revoke", "server", "--renew", "server")
	s.Process.Signal(syscall.SIGHUP)
	s.says("the server uses the certificate in its folder now")
	if serial() == old {
		t.Error("new connections see the old certificate")
	}
	s.hold(0)
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
	s := serve(t, 1)
	s.issue("client-0", time.Now().Add(-time.Minute))
	if _, err := s.connect(s.tls(s.at("certs"), "client-0")); err == nil {
		t.Error("an expired certificate is accepted")
	}
	valid := 4 * time.Second
	for ; !expires(t, valid) && valid < time.Hour; valid *= 2 { // on a busy machine a client joins too late
	}
	if valid >= time.Hour {
		t.Error("no client with a certificate that expires takes part")
	}
}

// expires runs a client whose certificate is valid for some time. It reports whether the client took part before.
func expires(t *testing.T, valid time.Duration) bool {
	t.Helper()
	s := serve(t, 3)
	s.hold(1)
	s.issue("client-0", time.Now().Add(valid).Truncate(time.Second))
	other, err := s.connect(s.tls(s.at("certs"), "client-0"))
	if err != nil {
		return false
	}
	for k := range 3 {
		s.background(part{client: k})
	}
	s.until("a round, or the end of the certificate", func() bool {
		return len(s.records()) > 0 || strings.Contains(s.log.String(), "expired")
	})
	if r := s.records(); len(r) == 0 || fmt.Sprint(r[0].Clients) != "[0 1 2]" {
		return false
	}
	if !cut(t, other) {
		t.Error("the connection of an expired certificate stays open")
	}
	s.says(`msg="a client is excluded" client=0 reason="the certificate of client-0 expired on`)
	s.hold(0)
	counted(t, s.ends()[1:], 1, 2)
	return true
}

// The server ignores a list of revoked certificates that the authority did not sign, and an older list.
func TestRevokedList(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	s.certs("--clients", "4") // the run has three
	s.hold(1)
	s.joins(0, 1, 2)
	s.runs()
	list := s.at("certs", "revoked.pem")
	call(t, "certs", s.at("other"), "--clients", "1")
	s.certs("--revoke", "status")
	older := filetest.Read(t, list)
	s.certs("--revoke", "client-3")
	s.until("the second list in use", func() bool {
		_, err := s.connect(s.tls(s.at("certs"), "client-3"))
		return err != nil && strings.Contains(s.log.String(), "the certificate of client-3 is revoked")
	})
	for say, text := range map[string][]byte{"is older than list": older, "does not begin as PEM": []byte("x"),
		"did not sign it": s.foreignList()} {
		filetest.Write(t, list, text)
		s.says(say)
		if _, err := s.connect(s.tls(s.at("certs"), "status")); err == nil {
			t.Errorf("after a list that %s the certificate of status is accepted again", say)
		}
	}
	s.hold(0)
	counted(t, s.ends(), 0, 1, 2)
	if n := strings.Count(s.log.String(), "does not begin as PEM"); n > 2 {
		t.Errorf("the log says it %d times", n)
	}
}

// foreignList is a list of another authority that revokes client 0.
func (s *server) foreignList() []byte {
	s.t.Helper()
	call(s.t, "certs", s.at("other"), "--revoke", "client-0")
	return filetest.Read(s.t, s.at("other", "revoked.pem"))
}
