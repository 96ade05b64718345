//go:build !linux

package busytest

import (
	"net"
	"testing"
)

// Address returns an address of a host, an IP address, on which nobody listens now.
func Address(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
