package certs

import (
	"crypto/x509"
	"net"
	"os"
	"slices"
	"strings"

	"promptfed/runtime/convert"
)

// HostOf returns the host of an address for clients on other machines. Where the server's certificate, which may be
// nil, does not name the address, this is one of its names. For an unspecified address without such a name it is the
// source address of packets to other networks (none is sent), or this machine's own name.
func HostOf(address string, own *x509.Certificate) string {
	if own == nil {
		own = &x509.Certificate{}
	}

	names := slices.DeleteFunc(Hosts(own.DNSNames, own.IPAddresses), func(n string) bool {
		return strings.HasPrefix(n, "*")
	})
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	stated := err == nil && host != "" && (ip == nil || !ip.IsUnspecified())
	if stated && (len(names) == 0 || own.VerifyHostname(host) == nil) {
		return host
	}

	for _, n := range names {
		if isLoopback(n) == (stated && isLoopback(host)) {
			return n
		}
	}

	if len(names) > 0 {
		return names[0]
	}

	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil { // an address for documentation (RFC 5737)
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).IP.String()
	}

	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}

	return name
}

// Hosts joins names of hosts and IP addresses.
func Hosts(names []string, ips []net.IP) []string {
	return append(slices.Clone(names), convert.Slice(ips, net.IP.String)...)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
