package distributed

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/net/authority"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/promptfed/cli"
)

// runCerts runs promptfed certs and returns what it prints.
func runCerts(args ...string) (string, error) {
	c := certsCommand()
	var out bytes.Buffer
	c.SetIn(strings.NewReader(""))
	c.SetOut(&out)
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	err := c.Execute()
	return out.String(), err
}

func mustCerts(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runCerts(args...)
	if err != nil {
		t.Fatalf("certs %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// copyFiles copies files that one machine sends to another.
func copyFiles(t *testing.T, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		filetest.Write(t, filepath.Join(to, name), filetest.Read(t, from, name))
	}
}

// handshake connects a client to a server and returns the name that the server sees.
func handshake(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	goldentest.NoError(t, err)
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", l.Addr().String(), client)
		if err == nil {
			defer c.Close()
			_, err = c.Read(make([]byte, 1)) // an alert of the server comes after the client's handshake
		}
		done <- err
	}()
	c, err := l.Accept()
	goldentest.NoError(t, err)
	defer c.Close()
	if err := c.(*tls.Conn).Handshake(); err != nil {
		c.Close()
		<-done
		return "", err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName, <-done
}

// A client and a server make their keys on their own machines, and the holder of the authority approves their requests.
// Only requests and certificates are sent.
func TestCertsRequest(t *testing.T) {
	root := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	machine := func(dir, name string, more ...string) (fingerprint string) {
		t.Helper()
		out := mustCerts(t, append([]string{at(dir), "--request", name}, more...)...)
		r, err := authority.ReadRequest(at(dir, name+".csr"))
		goldentest.NoError(t, err)
		if !strings.Contains(out, r.Fingerprint) || strings.Count(out, "\n") != 1 {
			t.Errorf("%q does not say %s in one line", out, r.Fingerprint)
		}
		copyFiles(t, at(dir), at("mail"), name+".csr")
		return r.Fingerprint
	}
	certs := func(args ...string) (string, error) { return runCerts(append([]string{at("certs")}, args...)...) }
	approve := func(name, digits string, more ...string) error {
		_, err := certs(append([]string{"--approve", at("mail", name+".csr"), "--fingerprint", digits}, more...)...)
		return err
	}
	answer := func(dir, name string) {
		t.Helper()
		copyFiles(t, at("certs"), at(dir), "ca.pem", name+".pem")
	}

	client := machine("client", "client-3")
	_, err := certs("--approve", at("mail", "client-3.csr"))
	goldentest.WantError(t, err, "no terminal", "--fingerprint", "--yes")
	goldentest.WantError(t, approve("client-3", client[:15]), "16 digits")
	goldentest.WantError(t, approve("client-3", "", "--yes"), "16 digits")
	goldentest.WantError(t, approve("client-3", strings.Repeat("0", 64)), "not the fingerprint", "nothing was signed")
	if _, err := os.Stat(at("certs")); err == nil {
		t.Error("a refused request made an authority")
	}
	goldentest.NoError(t, approve("client-3", strings.ToUpper(client[:16])))
	answer("client", "client-3")
	if err := approve("server", machine("server", "server", "--host", "127.0.0.1"), "--host", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	answer("server", "server")

	join := func(dir string) (string, error) {
		t.Helper()
		server, err := authority.ServerTLS(at("server"))
		goldentest.NoError(t, err)
		client, err := authority.ClientTLS(at(dir), "client-3")
		goldentest.NoError(t, err)
		return handshake(t, server, client)
	}
	if name, err := join("client"); err != nil || name != "client-3" {
		t.Errorf("%q joins: %v", name, err)
	}

	// Another machine requests the name of a client that has a certificate.
	thief := machine("thief", "client-3")
	goldentest.WantError(t, approve("client-3", thief), "valid certificate for another key", "--renew client-3")
	copyFiles(t, at("certs"), at("thief"), "ca.pem", "client-3.pem")
	_, err = authority.ClientTLS(at("thief"), "client-3")
	goldentest.WantError(t, err, "private key does not match")
	mustCerts(t, at("other"), "--approve", at("mail", "client-3.csr"), "--yes")
	copyFiles(t, at("other"), at("thief"), "client-3.pem")
	if name, err := join("thief"); err == nil {
		t.Errorf("%q joins with a certificate of another authority", name)
	}

	// Who is refused revokes nothing.
	hub := machine("hub", "server", "--host", "hub.new")
	goldentest.WantError(t, approve("server", hub, "--revoke", "server"), `the address "hub.new"`)
	machine("client", "client-3")
	goldentest.WantError(t, approve("client-3", client, "--revoke", "client-3"), "client-3.pem, which is or would be")
	_, err = certs("--revoke", "client-3", "--renew", "client-4")
	goldentest.WantError(t, err, "--renew client-4")
	if _, err := os.Stat(at("certs", "revoked.pem")); err == nil {
		t.Error("a refused command revokes a certificate")
	}

	// The client loses its key: the old certificate is revoked with the approval of the new one.
	old, err := tls.LoadX509KeyPair(at("client", "client-3.pem"), at("client", "client-3-key.pem"))
	goldentest.NoError(t, err)
	_, err = certs("--renew", "client-3")
	goldentest.WantError(t, err, "--renew client-3", "--request client-3", "--approve")
	goldentest.NoError(t, os.Remove(at("client", "client-3-key.pem")))
	goldentest.NoError(t, approve("client-3", machine("client", "client-3"), "--revoke", "client-3"))
	answer("client", "client-3")
	if name, err := join("client"); err != nil || name != "client-3" {
		t.Errorf("%q joins with its new certificate: %v", name, err)
	}
	list, err := authority.Revoked(at("certs"))
	if err != nil || list.Check([]*x509.Certificate{old.Leaf}, 0) == nil {
		t.Errorf("the old certificate is not revoked: %v", err)
	}
	_, err = certs("--approve", at("mail", "client-3.csr"), "--yes", "--renew", "client-4")
	goldentest.WantError(t, err, "--renew client-4", "client-3")

	for _, dir := range []string{at("certs"), at("certs-authority"), at("mail")} {
		files, err := os.ReadDir(dir)
		goldentest.NoError(t, err)
		for _, f := range files {
			text := filetest.Read(t, dir, f.Name())
			if bytes.Contains(text, []byte("PRIVATE")) && f.Name() != "ca-key.pem" {
				t.Errorf("%s holds the private key %s", dir, f.Name())
			}
		}
	}
}

// The steps of promptfed certs are separate, and --clients says that it is for trials.
func TestCertsSteps(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	for _, x := range []struct {
		args []string
		want string
	}{
		{nil, "certs needs --request NAME"},
		{[]string{"--clients", "2", "--request", "client-0"}, "separate steps"},
		{[]string{"--approve", "x.csr", "--request", "client-0"}, "separate steps"},
		{[]string{"--clients", "2", "--renew", "client-0"}, "separate steps"},
		{[]string{"--request", "client-0", "--revoke", "client-0"}, "separate steps"},
		{[]string{"--clients", "1", "--host", ""}, "--host: no address is given"},
		{[]string{"--clients", "1", "--host", ","}, `--host "": expected an IP address or a name`},
		{[]string{"--clients", "1", "--host", "exa mple.org"}, `--host "exa mple.org"`},
		{[]string{"--request", "server", "--host", "http://x:80"}, `--host "http://x:80"`},
		{[]string{"--request", "server", "--host", "1.2.3.4:80"}, `--host "1.2.3.4:80"`},
		{[]string{"--approve", "x.csr", "--host", "[::1]"}, `--host "[::1]"`},
		{[]string{"--renew", "server", "--host", "münchen.de"}, `--host "münchen.de"`},
		{[]string{"--renew", "client-0", "--host", "hub.new"}, "add --renew server"},
	} {
		_, err := runCerts(append([]string{dir}, x.args...)...)
		if goldentest.WantError(t, err, x.want); err != nil && !cli.IsUsage(err) {
			t.Errorf("%v: %v is no error of usage", x.args, err)
		}
	}
	_, err := runCerts(dir, "--request", "client-1e3")
	goldentest.WantError(t, err, `"client-1e3" is not a name`)
	out := mustCerts(t, dir, "--clients", "1", "--days", "36500")
	goldentest.Contains(t, out, "for a trial", "every client's key", "--request", "the authority ends on 20")
	_, err = runCerts(dir, "--clients", "2", "--host", "hub.new,::1")
	goldentest.WantError(t, err, "valid for localhost, not hub.new", "--renew server")
	mustCerts(t, dir, "--renew", "client-0,server", "--host", "hub.new,*.a_b.de,::2")
	conf, err := authority.ServerTLS(dir)
	goldentest.NoError(t, err)
	if c := conf.Certificates[0].Leaf; strings.Join(c.DNSNames, " ") != "hub.new *.a_b.de" || len(c.IPAddresses) != 1 {
		t.Errorf("the server is %v and %v", c.DNSNames, c.IPAddresses)
	}
	mustCerts(t, dir, "--clients", "2", "--host", "hub.new")
}
