package program

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/e2e/proctest"
)

// Clients behind a relay of TCP, which cannot read TLS, learn what one process learns.
func TestRelay(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	var up atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(c, f.address, &up)
		}
	}()
	all := []*process{f.serve()}
	for k := range 2 {
		all = append(all, f.join(k, nil, "https://"+l.Addr().String(), "--tls", f.at("certs")))
	}
	for _, p := range all {
		p.ends(t)
	}
	if t.Failed() {
		return
	}
	f.learned()
	if up.Load() == 0 {
		t.Error("nothing went through the relay")
	}
}

// nginx is a reverse proxy that passes TLS through to the server of the name in the handshake, and closes connections
// that are idle for a minute. Pings keep the connection of a client that waits for longer. (Debian has no package of
// Envoy.)
const nginx = `
load_module %s/ngx_stream_module.so;
daemon off;
pid %s/pid;
error_log stderr;
events {}
stream {
  map $ssl_preread_server_name $server {
    localhost %s;
    default 127.0.0.1:1;
  }
  server {
    listen %s;
    ssl_preread on;
    proxy_pass $server;
    proxy_timeout 60s;
  }
}
`

// Clients behind nginx learn what one process learns.
func TestNginx(t *testing.T) {
	t.Parallel()
	const modules = "/usr/lib/nginx/modules" // of Debian's packages nginx and libnginx-mod-stream
	path, err := exec.LookPath("nginx")
	if _, e := os.Stat(filepath.Join(modules, "ngx_stream_module.so")); err != nil || e != nil {
		t.Skip("nginx with its module stream is not installed")
	}
	f := newFederation(t)
	address := busytest.Address(t, "127.0.0.1")
	conf := fmt.Sprintf(nginx, modules, f.dir, f.address, address)
	filetest.Write(t, f.at("nginx.conf"), conf)
	server := f.serve()
	var log proctest.Output
	proxy := exec.Command(path, "-c", f.at("nginx.conf"), "-e", "stderr")
	proxy.Stderr = &log
	goldentest.NoError(t, proxy.Start())
	t.Cleanup(func() {
		proxy.Process.Signal(os.Interrupt) // its other processes end, too
		proxy.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	url := "https://localhost:" + address[strings.LastIndex(address, ":")+1:]
	first := f.join(0, nil, url, "--tls", f.at("certs"))
	first.says(t, "joined")
	busytest.Delay(75 * time.Second) // longer than proxy_timeout
	second := f.join(1, nil, url, "--tls", f.at("certs"))
	for _, p := range []*process{server, first, second} {
		p.ends(t)
	}
	if t.Failed() {
		return
	}
	f.learned()
	if said := first.said(); strings.Contains(said, "connection is lost") {
		t.Errorf("the connection of a client that waits was lost: %s", said)
	}
}
