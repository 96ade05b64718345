package program

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/runtime/goldentest"
)

// inspector is a proxy that opens TLS connections, with an authority of its own, as companies use it.
type inspector struct {
	t    *testing.T
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	read atomic.Int32  // bytes that it could read
	last atomic.Uint32 // highest version of TLS that it speaks; 0 for any
}

func newInspector(t *testing.T) *inspector {
	p := &inspector{t: t}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	own := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Hospital Inspection CA"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	p.ca = p.sign(own, own, &p.key.PublicKey)
	return p
}

// sign makes a certificate.
func (p *inspector) sign(c, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, p.key)
	if err != nil {
		p.t.Error(err)
		return nil
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		p.t.Error(err)
	}
	return out
}

// serve answers a client as if it were the server, and counts the bytes of its messages.
func (p *inspector) serve(c net.Conn) {
	conf := &tls.Config{NextProtos: []string{"h2"}, ClientAuth: tls.RequestClientCert,
		MaxVersion: uint16(p.last.Load()),
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return nil, err
			}
			leaf := p.sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour),
				Subject: pkix.Name{CommonName: hello.ServerName}, DNSNames: []string{hello.ServerName}}, p.ca,
				&key.PublicKey)
			return &tls.Certificate{Certificate: [][]byte{leaf.Raw, p.ca.Raw}, PrivateKey: key}, nil
		}}
	s := tls.Server(c, conf)
	defer s.Close()
	b := make([]byte, 1<<10)
	for {
		n, err := s.Read(b)
		p.read.Add(int32(n))
		if err != nil {
			return
		}
	}
}

// A client behind a proxy that opens TLS connections ends with one line, which names the issuer of the proxy's
// certificates and the proxy. The client sends it nothing: no message, no token.
func TestInspectingProxy(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	inspects := newInspector(t)
	p := newConnectProxy(t, &connectProxy{inspect: inspects.serve})
	const issuer = `"CN=Hospital Inspection CA"`
	between := "a proxy " + strings.TrimPrefix(p.URL, "http://") + " that opens TLS connections may be between; ask " +
		"its operator to pass this host through"
	for name, c := range map[string]struct {
		version uint16
		args    []string
		words   string
	}{
		"certificates": {0, []string{"--tls", f.at("certs")}, "the certificate of " + hub + " is signed by " +
			issuer + ", not by the authority of --tls: " + between + ", or get the right ca.pem"},
		"no certificates": {0, nil, hub + ` is not the server of a run: the certificate of "hub.example" is signed ` +
			"by " + issuer + ", not by its own key: give --tls DIR if the run has certificates; if not, " + between},
		"TLS 1.2": {tls.VersionTLS12, []string{"--tls", f.at("certs")}, hub + " is not the server of a run: it " +
			"does not speak HTTP/2 over TLS 1.3 (tls: protocol version not supported): " + between},
	} {
		inspects.last.Store(uint32(c.version))
		t.Log(name)
		f.join(0, p.env(), "https://"+hub, append(c.args, "--token", "secret")...).saysOnly(t, c.words)
		startIn(t, append(p.env(), "PROMPTFED_TOKEN=secret"), append([]string{"status", "https://" + hub},
			c.args...)...).saysOnly(t, c.words)
	}
	if n := p.passed.Load(); n != 8 { // join asks three times about a version, which may be damage on the way
		t.Errorf("%d connections, want 8", n)
	}
	if n := inspects.read.Load(); n != 0 {
		t.Errorf("the proxy read %d bytes", n)
	}
}

// A client of something that is not promptfed serve ends with one line.
func TestWrongServer(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.at("certs"), "server.pem"), filepath.Join(f.at("certs"),
		"server-key.pem"))
	goldentest.NoError(t, err)
	var read atomic.Int32
	// serves answers at an address: with TLS unless conf is nil.
	serves := func(conf *tls.Config, handler http.Handler) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		goldentest.NoError(t, err)
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			read.Add(1)
			handler.ServeHTTP(w, r)
		})}
		t.Cleanup(func() { s.Close() })
		if conf != nil {
			conf.Certificates = []tls.Certificate{pair}
			go s.Serve(tls.NewListener(l, conf))
		} else {
			go s.Serve(l)
		}
		return l.Addr().String()
	}
	smtp, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)
	t.Cleanup(func() { smtp.Close() })
	go func() {
		for {
			c, err := smtp.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("220 mail.example ESMTP\r\n"))
			c.Read(make([]byte, 1<<10))
			c.Close()
		}
	}()
	const noTLS = "it does not speak TLS; give the address that promptfed serve prints"
	const noHTTP2 = "it does not speak HTTP/2"
	none := http.NotFoundHandler()
	for name, c := range map[string]struct{ address, words string }{
		"HTTP":        {serves(nil, none), noTLS},
		"SMTP":        {smtp.Addr().String(), noTLS},
		"HTTP/1 only": {serves(&tls.Config{NextProtos: []string{"http/1.1"}}, none), noHTTP2 + " over TLS 1.3"},
		"no ALPN":     {serves(&tls.Config{}, none), noHTTP2},
		"TLS 1.2":     {serves(&tls.Config{MaxVersion: tls.VersionTLS12}, none), noHTTP2 + " over TLS 1.3"},
	} {
		t.Run(name, func(t *testing.T) {
			url := "https://" + c.address
			f.join(0, nil, url, "--tls", f.at("certs"), "--token", "secret").saysOnly(t, c.address+
				" is not the server of a run", c.words)
			startIn(t, nil, "status", url, "--tls", f.at("certs")).saysOnly(t, c.address, c.words)
		})
	}
	if read.Load() != 0 {
		t.Errorf("%d requests were sent", read.Load())
	}
}
