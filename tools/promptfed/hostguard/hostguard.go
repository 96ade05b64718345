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

// Loopback is Listening for a server on a loopback address.
func Loopback(next http.Handler) http.Handler { return guard{next: next} }

// Listening returns a handler that passes a request to next if the Host header names this server, and if the request
// changes nothing or comes from no page of another origin. Other requests get status 403 and one line. listen is
// HOST:PORT from the user, and at is the address of the server.
// On a loopback address, the host may be localhost, a loopback address or HOST. On other addresses, the host may be any
// IP address, HOST, localhost or the name of the machine. IP addresses are safe, because a page whose host is an IP
// address comes from that address.
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
	addresses bool // allows every IP address, not only loopback addresses
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

// named reports whether a Host header names this server.
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
