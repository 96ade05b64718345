package certs

import (
	"crypto/x509"
	"net"
	"os"
	"strings"
)

// HostOf returns the host of an address for clients on other machines. For an unspecified address this is one of the
// names of the server's certificate, which may be nil, or the source address of packets to other networks (none is
// sent), or this machine's own name.
func HostOf(address string, own *x509.Certificate) string {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host
	}
	if own == nil {
		own = &x509.Certificate{}
	}
	for _, name := range own.DNSNames {
		if name != "localhost" && !strings.HasPrefix(name, "*") {
			return name
		}
	}
	for _, ip := range own.IPAddresses {
		if !ip.IsLoopback() {
			return ip.String()
		}
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
