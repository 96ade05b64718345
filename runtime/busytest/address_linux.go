package busytest

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
)

// Address returns an address of a host, an IP address, that belongs to the test until it ends. A server may listen on
// it, end, and listen again. While no server does, connections are refused.
//
// The test keeps a socket that is bound and does not listen. Linux then gives the port to nobody who asks for any port,
// neither to listen nor to connect, and lets a server listen on exactly this one, since both sockets have SO_REUSEADDR.
func Address(t testing.TB, host string) string {
	t.Helper()
	ip, err := netip.ParseAddr(host)
	if err != nil {
		t.Fatal(err)
	}

	var family int
	var anyPort syscall.Sockaddr
	if ip.Is4() {
		family, anyPort = syscall.AF_INET, &syscall.SockaddrInet4{Addr: ip.As4()}
	} else {
		family, anyPort = syscall.AF_INET6, &syscall.SockaddrInet6{Addr: ip.As16()}
	}

	socket, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { syscall.Close(socket) })
	err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(socket, anyPort)
	}

	if err != nil {
		t.Fatal(err)
	}

	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}

	port := 0
	switch bound := bound.(type) {
	case *syscall.SockaddrInet4:
		port = bound.Port
	case *syscall.SockaddrInet6:
		port = bound.Port
	}

	return net.JoinHostPort(host, strconv.Itoa(port))
}
