package program

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
)

// Without certificates every output says that the run is insecure: the log, the terms of join, the status and the last
// line. A server on a loopback address needs no flag, one on all addresses needs --insecure. Clients come by IPv6.
func TestInsecure(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	l.Close()
	for _, flags := range [][]string{nil, {"--insecure"}} {
		f := &federation{t: t, dir: setup(t), address: busytest.Address(t, "::1")}
		url, listen := "https://"+f.address, f.address
		if flags != nil {
			listen = ":0" // on all addresses, where others may hold the port of one
		}

		server := start(t, append(f.train("serve", f.at("small.yaml"), "--out", f.at("serve"), "--listen", listen,
			"--quorum", "1"), flags...)...)
		server.says(t, "waiting for clients")
		address := regexp.MustCompile(`promptfed join (https://\S+:\d+) --client K`).FindStringSubmatch(server.said())
		if address == nil || flags == nil && address[1] != url || flags != nil && strings.Contains(address[1], "[::]") {
			t.Fatalf("%v: the server prints the address %q", flags, address)
		}
		if flags != nil {
			url = "https://[::1]" + address[1][strings.LastIndex(address[1], ":"):]
		}

		const words = "insecure: encrypted, but no certificate says whose the keys are"
		if text := mustRun(t, "status", url); !strings.Contains(text, words) {
			t.Errorf("status:\n%s", text)
		}
		if text := mustRun(t, "status", url, "--json"); !strings.Contains(text, `"insecure":true`) {
			t.Errorf("status --json: %s", text)
		}
		clients := []*process{f.join(0, nil, url), f.join(1, nil, url)}
		for _, p := range append(clients, server) {
			p.ends(t)
			if !strings.Contains(p.said(), words) {
				t.Errorf("%v does not say that it is insecure", p.Args)
			}
		}
		if !regexp.MustCompile(`msg=done .* insecure=true\n`).MatchString(server.said()) {
			t.Error("the last line does not say that the run was insecure")
		}
		if !t.Failed() {
			f.learned()
		}
	}
}

// With certificates no output says that the run is insecure.
func TestSecure(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	url, certs := "https://"+f.address, f.at("certs")
	all := []*process{f.serve()}
	said := mustRun(t, "status", url, "--tls", certs) + mustRun(t, "status", url, "--tls", certs, "--json")
	for k := range 2 {
		all = append(all, f.join(k, nil, url, "--tls", certs))
	}
	for _, p := range all {
		p.ends(t)
		said += p.said()
	}
	said = strings.Replace(said, `"insecure":false`, "", 1)
	if strings.Contains(said, "insecure") || !strings.Contains(said, "TLS; both sides have certificates") {
		t.Error(said)
	}
}
