// Package hostguard keeps web pages of others away from what the program serves over HTTP: pages whose name was made to
// lead to this machine (DNS rebinding), and pages that have a browser here send requests for them.
package hostguard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Loopback is Listening for a server that listens on a loopback address.
func Loopback(next http.Handler) http.Handler { return guard{next: next} }

// Listening answers a request with next if its Host header names what the server listens on, and if it changes nothing
// or no page of another origin had it sent; others get status 403 and one line. listen is HOST:PORT as a user gave it,
// at the address that the server has.
//
// On a loopback address a host may be localhost, a loopback address or HOST; elsewhere any address, HOST, localhost or
// the machine's own name. No page can have an address as its name and another machine behind it, so addresses are safe.
func Listening(listen string, at net.Addr, next http.Handler) http.Handler {
	name, _, err := net.SplitHostPort(listen)
	if err != nil {
		name = listen
	}
	var names []string
	if _, err := netip.ParseAddr(name); err != nil && name != "" {
		names = append(names, name)
	}
	if own, ok := at.(*net.TCPAddr); ok && own.IP.IsLoopback() {
		return guard{names, false, next}
	}
	if own, err := os.Hostname(); err == nil {
		names = append(names, own)
	}
	return guard{names, true, next}
}

type guard struct {
	names     []string
	addresses bool // any address is a host, and not loopback addresses alone
	next      http.Handler
}

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.named(r.Host) {
		http.Error(w, fmt.Sprintf("no request may name %.100q as its host here: use this server's address, or give "+
			"that name as HOST where the server is started", r.Host), http.StatusForbidden)
		return
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "a web page of another origin may not send this request: "+err.Error(), http.StatusForbidden)
		return
	}
	g.next.ServeHTTP(w, r)
}

// named tells whether a Host header names this server.
func (g guard) named(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return g.addresses || a.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(g.names, func(name string) bool {
		return strings.EqualFold(host, name)
	})
}
