package program

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// hub is the name of a server that only the proxies of tests know.
const hub = "hub.example:8443"

// connectProxy is an HTTP proxy that connects its clients to the server hub.
type connectProxy struct {
	*httptest.Server
	to      string           // address of hub
	user    string           // USER:PASSWORD that clients must have; empty for none
	status  int              // the answer to refused clients
	refuse  atomic.Int32     // how many clients are refused before the others pass
	inspect func(c net.Conn) // serves connections instead of hub; nil for none
	asked   atomic.Int32     // requests
	passed  atomic.Int32     // connections
	up      atomic.Int32     // bytes from clients
}

func newConnectProxy(t *testing.T, p *connectProxy) *connectProxy {
	t.Helper()
	p.Server = httptest.NewServer(http.HandlerFunc(p.connect))
	t.Cleanup(p.Close)
	return p
}

// env returns the environment of a client behind the proxy.
func (p *connectProxy) env() []string {
	if p.user == "" {
		return []string{"HTTPS_PROXY=" + p.URL}
	}
	return []string{"HTTPS_PROXY=" + strings.Replace(p.URL, "//", "//"+p.user+"@", 1)}
}

func (p *connectProxy) connect(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.user))
	switch {
	case r.Method != http.MethodConnect || r.Host != hub:
		http.Error(w, "no such host", http.StatusBadGateway)
		return
	case p.user != "" && r.Header.Get("Proxy-Authorization") != want:
		http.Error(w, "who are you", http.StatusProxyAuthRequired)
		return
	case p.refuse.Add(-1) >= 0:
		http.Error(w, "no", p.status)
		return
	}
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	p.passed.Add(1)
	if p.inspect != nil {
		p.inspect(client)
		return
	}
	relay(client, p.to, &p.up)
}

// relay copies bytes between a client and the server at an address, and counts those of the client.
func relay(client net.Conn, to string, up *atomic.Int32) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		defer server.Close()
		n, _ := io.Copy(server, client)
		up.Add(int32(n))
	}()
	io.Copy(client, server)
}

// federation is an experiment of two clients with certificates for the name of hub.
type federation struct {
	t       *testing.T
	dir     string
	address string // of the server
}

func newFederation(t *testing.T) *federation {
	f := &federation{t, setup(t), busytest.Address(t, "127.0.0.1")}
	mustRun(t, "certs", f.at("certs"), "--clients", "2", "--host", "hub.example", "--host", "localhost", "--host",
		"127.0.0.1")
	return f
}

func (f *federation) at(name string) string { return filepath.Join(f.dir, name) }

// train adds what all commands that train have in common.
func (f *federation) train(args ...string) []string {
	return append(args, "--set", "partition.clients=2", "--set", "train.rounds=2")
}

func (f *federation) serve() *process {
	f.t.Helper()
	p := start(f.t, f.train("serve", f.at("small.yaml"), "--out", f.at("serve"), "--listen", f.address, "--quorum", "1",
		"--tls", f.at("certs"))...)
	p.says(f.t, "waiting for clients")
	return p
}

// join starts a client of the server at a URL.
func (f *federation) join(k int, env []string, url string, more ...string) *process {
	f.t.Helper()
	return startIn(f.t, env, f.train(append([]string{"join", url, "--client", fmt.Sprint(k), "--config",
		f.at("small.yaml"), "--partition", "--state", f.at(fmt.Sprint("client", k))}, more...)...)...)
}

// learned checks that server and clients learned what one process learns.
func (f *federation) learned() {
	f.t.Helper()
	mustRun(f.t, f.train("run", f.at("small.yaml"), "--out", f.at("run"))...)
	if !bytes.Equal(together(f.t, f.at("serve"), f.at("client0"), f.at("client1")), together(f.t, f.at("run"))) {
		f.t.Error("server and clients learned something else than one process")
	}
}

// saysOnly checks that a process fails with one line that contains words.
func (p *process) saysOnly(t *testing.T, words ...string) {
	t.Helper()
	<-p.Done
	said := p.said()
	if p.ProcessState.ExitCode() != failed || strings.Count(said, "\n") != 1 ||
		!strings.HasPrefix(said, "promptfed: ") {
		t.Errorf("exit %d, %s; want one line", p.ProcessState.ExitCode(), said)
	}
	goldentest.Contains(t, said, words...)
}

// Two clients that reach the server only through a proxy with a password learn what one process learns. The proxy alone
// resolves the server's name. While the proxy does not reach the server, clients wait. No output has the password.
func TestProxy(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	p := newConnectProxy(t, &connectProxy{to: f.address, user: "site:word", status: http.StatusBadGateway})
	all := []*process{f.serve()}
	startIn(t, p.env(), "status", "https://"+hub, "--tls", f.at("certs")).ends(t)
	p.refuse.Store(2)
	for k := range 2 {
		all = append(all, f.join(k, p.env(), "https://"+hub, "--tls", f.at("certs")))
	}
	for _, c := range all {
		c.ends(t)
	}
	if t.Failed() {
		return
	}
	f.learned()
	if p.passed.Load() < 3 || p.up.Load() == 0 {
		t.Errorf("%d connections went through the proxy, %d bytes", p.passed.Load(), p.up.Load())
	}
	said := all[1].said() + all[2].said()
	if !strings.Contains(said, "waiting for the server") || !strings.Contains(said, "502 Bad Gateway") ||
		strings.Contains(said, "word") {
		t.Error(said)
	}
}

// A proxy that refuses ends a client with one line, and NO_PROXY exempts the server from the proxy.
func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	p := newConnectProxy(t, &connectProxy{to: f.address, status: http.StatusForbidden})
	p.refuse.Store(1 << 20)
	address := strings.TrimPrefix(p.URL, "http://")
	f.join(0, p.env(), "https://"+hub, "--tls", f.at("certs")).saysOnly(t, "the proxy "+address+
		" does not connect to "+hub+": 403 Forbidden", "ask its operator to allow it", "NO_PROXY")
	startIn(t, p.env(), "status", "https://"+hub, "--tls", f.at("certs")).saysOnly(t, "403 Forbidden")
	closed := newConnectProxy(t, &connectProxy{to: f.address, user: "site:word"})
	wrong := []string{"HTTPS_PROXY=" + strings.Replace(closed.URL, "//", "//site:guess@", 1)}
	f.join(0, wrong, "https://"+hub, "--tls", f.at("certs")).saysOnly(t, "407 Proxy Authentication Required",
		"give the right user and password, as in HTTPS_PROXY=http://USER:PASSWORD@")
	for _, bad := range []string{"https://127.0.0.1:1", "ftp://127.0.0.1:1"} {
		f.join(0, []string{"HTTPS_PROXY=" + bad}, "https://"+hub, "--tls", f.at("certs")).saysOnly(t,
			"HTTPS_PROXY: expected http://HOST:PORT")
	}
	asked := p.asked.Load()
	without := append(p.env(), "NO_PROXY=hub.example")
	startIn(t, without, "status", "https://"+hub, "--tls", f.at("certs")).saysOnly(t, "lookup hub.example")
	if n := p.asked.Load() - asked; n != 0 {
		t.Errorf("%d requests to a proxy that NO_PROXY excludes", n)
	}
}
