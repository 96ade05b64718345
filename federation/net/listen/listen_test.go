package listen

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// log is a log that tests read while it is written.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// folder makes certificates of 20 clients that are valid for a time, in a folder whose authority is in folder + "-ca".
func folder(t *testing.T, life time.Duration, hosts ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	if _, err := authority.Make(dir, dir+"-ca", 20, hosts, life); err != nil {
		t.Fatal(err)
	}
	return dir
}

func revoke(t *testing.T, dir, name string) {
	t.Helper()
	err := authority.Replace(dir, dir+"-ca", []string{name}, nil, nil, time.Hour, func(string, ...any) {})
	goldentest.NoError(t, err)
}

// identity returns the identity of a name in a folder; without a folder, one with a new key.
func identity(t *testing.T, dir, name string) certs.Identity {
	t.Helper()
	i, err := certs.Identity{}.WithKey("")
	if dir != "" {
		i, err = authority.Identity(dir, name)
	}
	goldentest.NoError(t, err)
	return i
}

func clientTLS(t *testing.T, i certs.Identity, name string, known ...byte) *tls.Config {
	t.Helper()
	conf, err := i.ClientTLS(name, func() []byte { return known })
	goldentest.NoError(t, err)
	conf.ServerName = "127.0.0.1"
	return conf
}

// open returns a listener with an HTTP server that admits each connection.
func open(t *testing.T, e Options) (*Listener, *log) {
	t.Helper()
	text := e.forTest()
	l, err := Open(e)
	goldentest.NoError(t, err)
	serve(t, l)
	return l, text
}

// openVirtual is open on a network in memory, for a test in virtual time: there no connection is late because the
// machine is busy.
func openVirtual(t *testing.T, e Options) (*Listener, *log) {
	t.Helper()
	text := e.forTest()
	l, err := newListener(e)
	goldentest.NoError(t, err)
	l.Listener = newMemory()
	l.start()
	serve(t, l)
	return l, text
}

// forTest completes options, and returns the log.
func (e *Options) forTest() *log {
	text := &log{}
	e.Log = slog.New(slog.NewTextHandler(text, nil))
	e.Address, e.Clients = cmp.Or(e.Address, "127.0.0.1:0"), 10
	return text
}

// serve runs an HTTP server that admits each connection.
func serve(t *testing.T, l *Listener) {
	t.Helper()
	type connKey struct{}
	s := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := r.Context().Value(connKey{}).(*Conn)
			if err := c.Admit(); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			io.WriteString(w, r.Proto+" "+c.Peer().Name)
		})}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// dialed returns a connection that the listener accepts.
func dialed(t *testing.T, l *Listener, conf *tls.Config, from string) *tls.Conn {
	t.Helper()
	conn, err := dial(t, l, conf, from)
	goldentest.NoError(t, err)
	return conn
}

// dial opens a connection from an address and completes its handshake.
func dial(t *testing.T, l *Listener, conf *tls.Config, from string) (*tls.Conn, error) {
	t.Helper()
	conn := tls.Client(connect(t, l, from), conf)
	return conn, conn.Handshake()
}

// connect opens a connection from an address.
func connect(t *testing.T, l *Listener, from string) net.Conn {
	t.Helper()
	if m, ok := l.Listener.(*memory); ok {
		return m.dial(t, from)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", l.Addr().String())
	goldentest.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// ended returns why the server ended a connection within a virtual time; nil if it did not.
func ended(c net.Conn, within time.Duration) error {
	c.SetReadDeadline(time.Now().Add(within))
	for b := make([]byte, 1024); ; {
		if _, err := c.Read(b); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// transport connects to a listener in memory.
func transport(t *testing.T, conf *tls.Config, l *Listener) *http.Transport {
	tr := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return connect(t, l, "127.0.0.1"), nil }}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// get requests a page and returns its text.
func get(t *testing.T, conf *tls.Config, l *Listener) (string, error) {
	t.Helper()
	tr := transport(t, conf, l)
	r, err := (&http.Client{Transport: tr}).Get("https://" + l.Addr().String())
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return string(text), err
}

// says reports an error if the log does not have some words now, when nothing happens any more in virtual time.
func (l *log) says(t *testing.T, words string) {
	t.Helper()
	synctest.Wait()
	if !strings.Contains(l.String(), words) {
		t.Errorf("the log does not say %q:\n%s", words, l)
	}
}

// An HTTP server speaks HTTP/2 with the connections, knows the client of each, and a client recognises the server's key
// again, with and without an authority. Too many open files for a moment stop nobody.
func TestHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t, time.Hour, "127.0.0.1")
		for _, dir := range []string{dir, ""} {
			server := identity(t, dir, "server")
			l, _ := openVirtual(t, Options{Identity: server})
			l.Listener.(*memory).accepted <- nil
			proof, err := server.Proof()
			goldentest.NoError(t, err)
			text, err := get(t, clientTLS(t, identity(t, dir, "client-3"), "client-3", proof.Key...), l)
			if err != nil || text != "HTTP/2.0 client-3" {
				t.Errorf("%q, %v", text, err)
			}
		}
	})
}

// show makes a client show a certificate whatever the server asks for.
func show(conf *tls.Config, own tls.Certificate) *tls.Config {
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return conf
}

// sign returns a new certificate of an authority, or one that its key signs itself.
func sign(t *testing.T, c x509.Certificate, key crypto.Signer, ca *x509.Certificate, by any) tls.Certificate {
	t.Helper()
	c.SerialNumber, c.IPAddresses = big.NewInt(7), []net.IP{net.IPv4(127, 0, 0, 1)}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if ca == nil {
		ca = &c
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, ca, key.Public(), by)
	goldentest.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	goldentest.NoError(t, err)
	return key
}

// authorityOf returns the certificate and key of a folder's authority.
func authorityOf(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir+"-ca", "ca-key.pem"))
	goldentest.NoError(t, err)
	return pair
}

// The server refuses clients without a valid certificate of a client, with an alert that reaches a client even if it
// sends requests before it reads, and logs the reason and the address. A client that is late by the second that the
// server waits for it sees no alert, which happens on a busy machine, but not every time.
func TestRefusedClients(t *testing.T) {
	t.Parallel()
	dir, other := folder(t, time.Hour, "127.0.0.1"), folder(t, time.Hour, "127.0.0.1")
	revoke(t, dir, "client-4")
	with := func(name string) *tls.Config { return clientTLS(t, identity(t, dir, name), name) }
	none := with("client-0")
	none.Certificates, none.GetClientCertificate = nil, nil
	old := with("client-0")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	key, ca := newKey(t), authorityOf(t, dir)
	expired := x509.Certificate{Subject: pkix.Name{CommonName: "client-0"}, NotAfter: time.Now().Add(-time.Hour)}
	unnamed := func(name string, key crypto.Signer, by any) *tls.Config {
		c := x509.Certificate{Subject: pkix.Name{CommonName: name}}
		return show(&tls.Config{InsecureSkipVerify: true}, sign(t, c, key, nil, by))
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	goldentest.NoError(t, err)
	const bad, unknown = "bad certificate", "unknown certificate authority"
	for name, c := range map[string]struct {
		server         string // folder
		conf           *tls.Config
		client, logged string
	}{
		"another authority": {dir, show(with("client-0"), clientTLS(t, identity(t, other, "client-0"),
			"client-0").Certificates[0]), unknown, "signed by unknown authority"},
		"self-signed":    {dir, unnamed("client-0", key, key), unknown, "signed by unknown authority"},
		"no certificate": {dir, none, "certificate required", "client didn't provide a certificate"},
		"TLS 1.2":        {dir, old, "protocol version not supported", "client offered only unsupported versions"},
		"the server's":   {dir, with("server"), bad, `\"server\" is not a client`},
		"a worker's":     {dir, with("worker"), bad, `\"worker\" is not a client`},
		"revoked":        {dir, with("client-4"), bad, "the certificate of client-4 is revoked"},
		"expired": {dir, show(with("client-0"), sign(t, expired, key, ca.Leaf, ca.PrivateKey)), "expired",
			"expired"},
		"no name":          {"", unnamed("", key, key), bad, `\"\" is not a client`},
		"no client's name": {"", unnamed("client-01", key, key), bad, `\"client-01\" is not a client`},
		"another's key": {"", unnamed("client-0", key, newKey(t)), bad,
			`\"client-0\" is signed by \"CN=client-0\", not by its own key`},
		"RSA":     {"", unnamed("client-0", rsaKey, rsaKey), bad, "neither Ed25519 nor ECDSA"},
		"nothing": {"", none, "certificate required", "client didn't provide a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			l, text := open(t, Options{Identity: identity(t, c.server, "server")})
			if c.server == "" {
				c.conf = c.conf.Clone()
				c.conf.InsecureSkipVerify, c.conf.VerifyConnection = true, nil
			}
			inARow := 0
			busytest.Until(t, c.client+", seen by five clients in a row", func() bool {
				conn, err := dial(t, l, c.conf, "127.0.0.1")
				for range 3 {
					if err == nil {
						busytest.Delay(5 * time.Millisecond)
						_, err = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
					}
				}
				if err == nil {
					_, err = io.Copy(io.Discard, conn)
				}
				if inARow++; err == nil || !strings.Contains(err.Error(), c.client) {
					t.Logf("the client sees %v; want %q", err, c.client)
					inARow = 0
				}
				return inARow == 5
			})
			busytest.Until(t, c.logged+" in the log", func() bool {
				return strings.Contains(text.String(), "from=127.0.0.1") && strings.Contains(text.String(), c.logged)
			})
		})
	}
}

// A client refuses a server that is not the run's.
func TestRefusedServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := folder(t, time.Hour, "127.0.0.1"), folder(t, time.Hour, "127.0.0.1")
		before := identity(t, dir, "server")
		if err := authority.Replace(dir, dir+"-ca", []string{"server"}, []string{"server"}, nil, time.Hour,
			func(string, ...any) {}); err != nil {
			t.Fatal(err)
		}
		ca := authorityOf(t, dir)
		made := func(use x509.ExtKeyUsage) certs.Identity {
			own := sign(t, x509.Certificate{Subject: pkix.Name{CommonName: "client-1"},
				ExtKeyUsage: []x509.ExtKeyUsage{use}}, newKey(t), ca.Leaf, ca.PrivateKey)
			i, err := certs.FromTLS(&tls.Config{Certificates: []tls.Certificate{own},
				RootCAs: clientTLS(t, before, "server").RootCAs})
			goldentest.NoError(t, err)
			return i
		}
		proof, err := identity(t, "", "").Proof()
		goldentest.NoError(t, err)
		ours, bare := clientTLS(t, identity(t, dir, "client-0"), "client-0"), identity(t, "", "")
		elsewhere := ours.Clone()
		elsewhere.ServerName = "host.example"
		for name, c := range map[string]struct {
			server certs.Identity
			conf   *tls.Config
			want   string
		}{
			"another authority":      {identity(t, other, "server"), ours, "signed by unknown authority"},
			"another host":           {identity(t, dir, "server"), elsewhere, "host.example"},
			"a client's certificate": {made(x509.ExtKeyUsageClientAuth), ours, "incompatible key usage"},
			"a client's name":        {made(x509.ExtKeyUsageServerAuth), ours, `belongs to "client-1", not to server`},
			"revoked":                {before, ours, "the certificate of server is revoked"},
			"without an authority":   {bare, ours, "doesn't contain any IP SANs"},
			"another key":            {bare, clientTLS(t, bare, "client-0", proof.Key...), certs.ErrOtherKey.Error()},
			"with an authority": {identity(t, dir, "server"), clientTLS(t, bare, "client-0"),
				`signed by "CN=promptfed authority", not by its own key`},
		} {
			c.server.Revoked = nil // as if the server had not heard of it
			l, text := openVirtual(t, Options{Identity: c.server})
			_, err := get(t, c.conf, l)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				errors.Is(err, certs.ErrOtherKey) != (name == "another key") {
				t.Errorf("%s: %v; want %q", name, err, c.want)
			}
			text.says(t, "remote error: tls: bad certificate")
		}
	})
}

// A user has at most so many connections. With certificates a new one beyond them is refused. Clients that the run does
// not have count as one user.
func TestConnectionsOfUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t, time.Hour, "127.0.0.1")
		l, text := openVirtual(t, Options{Identity: identity(t, dir, "server")})
		to := func(name string) *tls.Conn {
			c := dialed(t, l, clientTLS(t, identity(t, dir, name), name), "127.0.0.1")
			synctest.Wait()
			return c
		}
		var open []net.Conn
		for k := range maxConnections {
			open = append(open, to("client-0"), to("client-1"+string('0'+rune(k))))
		}
		if err := ended(to("client-0"), 5*time.Second); err == nil {
			t.Error("client 0 has one more connection")
		}
		text.says(t, "client-0 has 8 connections")
		if err := ended(to("client-19"), 5*time.Second); err == nil {
			t.Error("unknown clients have one more connection")
		}
		open = append(open, to("client-9"), to("status"))
		for k, c := range open {
			if err := ended(c, 10*time.Millisecond); err != nil {
				t.Errorf("connection %d: %v", k, err)
			}
		}
		open[0].Close()
		synctest.Wait()
		if err := ended(to("client-0"), time.Second); err != nil {
			t.Errorf("the place of a closed connection is not free: %v", err)
		}
	})
}

// Without an authority a name proves nothing. A new connection with a name beyond its limit then closes the oldest of
// the address with the most.
func TestConnectionsOfName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openVirtual(t, Options{Identity: identity(t, "", "")})
		from := func(address string) *tls.Conn {
			c := dialed(t, l, clientTLS(t, identity(t, "", ""), "client-0"), address)
			synctest.Wait()
			return c
		}
		real := from("127.0.0.2")
		first, second := from("127.0.0.1"), from("127.0.0.1")
		for range maxConnections - 3 {
			from("127.0.0.1")
		}
		for _, c := range []net.Conn{real, first, second} {
			goldentest.NoError(t, ended(c, 10*time.Millisecond))
		}
		from("127.0.0.3")
		if ended(first, 5*time.Second) == nil || ended(second, 10*time.Millisecond) != nil {
			t.Error("not the oldest connection of the flooding address is closed")
		}
		if err := ended(real, 10*time.Millisecond); err != nil {
			t.Errorf("the only connection of an address: %v", err)
		}
	})
}

// Silent connections close each other, those of the address with the most first, and keep nobody out.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t, time.Hour, "127.0.0.1")
		l, text := openVirtual(t, Options{Identity: identity(t, dir, "server")})
		l.mu.Lock()
		l.unauthenticated = 8
		l.mu.Unlock()
		slow := connect(t, l, "127.0.0.2")
		var list []net.Conn
		for range 50 {
			list = append(list, connect(t, l, "127.0.0.1"))
		}
		for k, c := range list[:50-8] {
			if ended(c, 3*time.Second) == nil {
				t.Errorf("silent connection %d of 50 stays", k)
			}
		}
		if text, err := get(t, clientTLS(t, identity(t, dir, "client-0"), "client-0"), l); err != nil {
			t.Errorf("%s, %v", text, err)
		}
		if err := ended(slow, 10*time.Millisecond); err != nil {
			t.Errorf("the only connection of an address: %v", err)
		}
		if err := ended(slow, handshakeTime+time.Second); err == nil {
			t.Error("a silent connection stays")
		}
		text.says(t, "it did not authenticate within 5s")
	})
}

// Handshakes beyond the burst wait for their turn, 50 in a quarter of a second, and silent connections take none.
func TestHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t, time.Hour, "127.0.0.1")
		l, _ := openVirtual(t, Options{Identity: identity(t, dir, "server")})
		time.Sleep(watchTime / 2) // between two watches
		for range 8 {
			connect(t, l, "127.0.0.1")
		}
		conf := clientTLS(t, identity(t, dir, "client-0"), "client-0")
		var slow []int
		for k := 1; k <= 400; k++ {
			began := time.Now()
			c := dialed(t, l, conf, "127.0.0.1")
			c.Close()
			if time.Since(began) > 0 {
				slow = append(slow, k)
			}
		}
		if want := []int{257, 307, 357}; !slices.Equal(slow, want) {
			t.Errorf("handshakes %v wait, want %v", slow, want)
		}
	})
}

// A connection that the handler must admit is unauthenticated until then, and closed after a time.
func TestDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := openVirtual(t, Options{Identity: identity(t, "", ""), Deferred: true})
		conf := clientTLS(t, identity(t, "", ""), "client-0")
		idle := dialed(t, l, conf, "127.0.0.1")
		tr := transport(t, conf, l)
		ask := func() (port string) {
			t.Helper()
			r, err := (&http.Client{Transport: tr}).Get("https://" + l.Addr().String())
			goldentest.NoError(t, err)
			r.Body.Close()
			l.mu.Lock()
			defer l.mu.Unlock()
			if n := len(l.of("client-0")); n != 1 {
				t.Errorf("client 0 has %d connections", n)
			}
			return l.of("client-0")[0].RemoteAddr().String()
		}
		before := ask()
		if ended(idle, handshakeTime+time.Second) == nil {
			t.Error("a connection that was not admitted stays")
		}
		if ask() != before {
			t.Error("an admitted connection was closed")
		}
	})
}

// Connections of a certificate that was revoked or expires are closed within a second, and others stay.
func TestLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t, time.Hour, "127.0.0.1")
		l, text := openVirtual(t, Options{Identity: identity(t, dir, "server")})
		var list []net.Conn
		for _, name := range []string{"client-0", "client-1"} {
			c := dialed(t, l, clientTLS(t, identity(t, dir, name), name), "127.0.0.1")
			list = append(list, c)
		}
		goldentest.NoError(t, ended(list[0], 2*watchTime))
		revoke(t, dir, "client-0")
		if ended(list[0], time.Second) == nil {
			t.Error("the connection of a revoked certificate stays")
		}
		if err := ended(list[1], 2*watchTime); err != nil {
			t.Error(err)
		}
		text.says(t, "the certificate of client-0 is revoked")

		dir = folder(t, 2*time.Second, "127.0.0.1") // to a whole second, so at least one
		l, text = openVirtual(t, Options{Identity: identity(t, dir, "server")})
		c := dialed(t, l, clientTLS(t, identity(t, dir, "client-0"), "client-0"), "127.0.0.1")
		end := c.ConnectionState().PeerCertificates[0].NotAfter
		if err := ended(c, 5*time.Second); err == nil || time.Now().Before(end) || time.Since(end) > time.Second {
			t.Errorf("%v, %v after the certificate expired", err, time.Since(end))
		}
		text.says(t, "expired on")
	})
}

// The server uses a renewed certificate for new connections; connections stay. It keeps its certificate if the new one
// is not the server's, or of another authority.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := folder(t, time.Hour, "127.0.0.1"), folder(t, time.Hour, "127.0.0.1")
		l, _ := openVirtual(t, Options{Identity: identity(t, dir, "server")})
		serial := func() (*tls.Conn, string) {
			t.Helper()
			c := dialed(t, l, clientTLS(t, identity(t, dir, "client-0"), "client-0"), "127.0.0.1")
			return c, c.ConnectionState().PeerCertificates[0].SerialNumber.String()
		}
		c, before := serial()
		for _, i := range []certs.Identity{identity(t, other, "server"), identity(t, dir, "client-0"),
			identity(t, "", ""), {}} {
			if l.Renew(i) == nil {
				t.Error("another certificate than the server's is accepted")
			}
		}
		if err := authority.Replace(dir, dir+"-ca", nil, []string{"server"}, nil, time.Hour,
			func(string, ...any) {}); err != nil {
			t.Fatal(err)
		}
		if _, now := serial(); now != before {
			t.Error("the certificate changed")
		}
		goldentest.NoError(t, l.Renew(identity(t, dir, "server")))
		if _, now := serial(); now == before {
			t.Error("the certificate is the old one")
		}
		if err := ended(c, 10*time.Millisecond); err != nil {
			t.Error(err)
		}
		l, _ = openVirtual(t, Options{Identity: identity(t, "", "")})
		if l.Renew(identity(t, dir, "server")) == nil {
			t.Error("a remembered key is replaced by a certificate")
		}
	})
}

// The limits follow from the limit of open files: two connections for each client, for unknown clients and for the
// status, and 32 without a user, are the least.
func TestLimits(t *testing.T) {
	for _, c := range []struct{ clients, most, unauthenticated, each int }{
		{20, 0, 256, 8}, {20, 76, 32, 2}, {20, 600, 150, 8}, {20, 200, 50, 6}, {1000, 1 << 20, 256, 8},
	} {
		if u, each, err := limits(c.clients, c.most); u != c.unauthenticated || each != c.each || err != nil {
			t.Errorf("%+v: %d, %d, %v", c, u, each, err)
		}
	}
	if _, _, err := limits(20, 60); err == nil || err.Error() != "20 clients need 76 connections, and the limit of "+
		"open files leaves 60; raise it to 156 (ulimit -n)" {
		t.Error(err)
	}
}

// Of refused connections the log has the first of ten seconds, and a summary.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, text := openVirtual(t, Options{Identity: identity(t, "", "")})
		refuse := func(from ...string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, a := range from {
				l.refuse(netip.MustParseAddr(a), errors.New("wrong token"))
			}
		}
		refuse("10.0.0.1", "10.0.0.2", "10.0.0.2")
		if s := text.String(); strings.Count(s, "\n") != 1 ||
			!strings.Contains(s, `from=10.0.0.1 reason="wrong token"`) {
			t.Error(s)
		}
		time.Sleep(summaryTime + watchTime)
		text.says(t, "more connections were refused\" count=2 addresses=2")
		refuse("10.0.0.3")
		text.says(t, "from=10.0.0.3")
		time.Sleep(summaryTime + watchTime) // one refusal needs no summary
		refuse("10.0.0.4")
		text.says(t, "from=10.0.0.4")
		time.Sleep(summaryTime + watchTime)
		for k := range 1<<16 + 2 { // of at most 2^16 addresses the log has the number
			refuse(fmt.Sprintf("10.%d.%d.%d", k>>16, k>>8&255, k&255))
		}
		time.Sleep(summaryTime + watchTime)
		text.says(t, "count=65537 addresses=65536")
		if s := text.String(); strings.Count(s, "more connections were refused") != 2 {
			t.Error(s)
		}
	})
}

// A listener on all addresses has a URL that another machine can use: never the unspecified address, and a name of its
// certificate if it has one. A listener on one address has that, or a name of its certificate, which lacks it.
func TestURL(t *testing.T) {
	named, bare := identity(t, folder(t, time.Hour, "localhost", "host.example"), "server"), identity(t, "", "")
	for _, c := range []struct {
		address string
		server  certs.Identity
		want    string // host; empty for any that is not unspecified
	}{{":0", bare, ""}, {"0.0.0.0:0", bare, ""}, {"[::]:0", named, "host.example"}, {"127.0.0.1:0", named, "localhost"},
		{"127.0.0.1:0", bare, "127.0.0.1"}, {"localhost:0", bare, "localhost"}} {
		l, _ := open(t, Options{Address: c.address, Identity: c.server})
		u, err := url.Parse(l.URL())
		goldentest.NoError(t, err)
		ip, at := net.ParseIP(u.Hostname()), l.Addr().(*net.TCPAddr)
		if u.Scheme != "https" || u.Port() != strconv.Itoa(at.Port) || u.Hostname() == "" || ip != nil &&
			ip.IsUnspecified() || c.want != "" && u.Hostname() != c.want {
			t.Errorf("%s: %s; want %s", c.address, u, c.want)
		}
	}
}

// An address that cannot be used, or an identity without a key, is reported at once.
func TestOpen(t *testing.T) {
	l, _ := open(t, Options{Identity: identity(t, "", "")})
	for words, e := range map[string]Options{
		"address already in use": {Address: l.Addr().String(), Identity: identity(t, "", "")},
		"missing port":           {Address: "8443", Identity: identity(t, "", "")},
		"has no key":             {Address: "127.0.0.1:0"},
	} {
		_, err := Open(e)
		goldentest.WantError(t, err, words)
	}
}
