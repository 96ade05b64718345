package busytest

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a test with a deadline, whose failures are kept.
type fake struct {
	*testing.T
	end   time.Time
	fatal string
}

func (f *fake) Deadline() (time.Time, bool) { return f.end, true }

func (f *fake) Fatalf(format string, a ...any) {
	f.fatal = fmt.Sprintf(format, a...)
	runtime.Goexit()
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{T: t, end: time.Now().Add(time.Hour)}
		calls := 0
		Until(f, "the fifth call", func() bool { calls++; return calls == 5 })
		if calls != 5 {
			t.Errorf("%d calls", calls)
		}

		ended := make(chan time.Time)
		go func() {
			defer func() { ended <- time.Now() }()
			Until(f, "nothing", func() bool { return false })
		}()
		left := f.end.Sub(<-ended)
		if left > grace || left < grace-time.Second || !strings.Contains(f.fatal, "nothing") {
			t.Errorf("%v before the deadline: %q", left, f.fatal)
		}
	})
}

// A server listens on an address again and again, and between two servers nobody else gets the port.
func TestAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		address := Address(t, host)
		for range 3 {
			if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("nobody listens: %v", err)
			}
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			client, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			server.Close() // this side waits for late packets, as that of a server that was killed
			client.Close()
			l.Close()
		}
	}
}

// Of two tests that ask at the same time, none gets the other's port.
func TestAddressesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		address := Address(t, "127.0.0.1")
		if seen[address] {
			t.Fatalf("%s belongs to two", address)
		}
		seen[address] = true
	}
}
