// Package proctest has what tests of promptfed as a process share: programs that are built once, what a process says,
// and free addresses.
package proctest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Programs are the paths of what tests start.
type Programs struct{ Promptfed, NATS string }

// Main builds the programs into *p, runs the tests of a package of tools/ and exits as its TestMain must.
func Main(m *testing.M, p *Programs) {
	dir, err := os.MkdirTemp("", "promptfed-test")
	if err != nil {
		panic(err)
	}
	*p = Programs{filepath.Join(dir, "promptfed"), filepath.Join(dir, "nats-server")}
	for out, from := range map[string]string{p.Promptfed: "promptfed/tools/promptfed",
		p.NATS: "github.com/nats-io/nats-server/v2"} {
		if text, err := exec.Command("go", "build", "-o", out, from).CombinedOutput(); err != nil {
			os.Stderr.Write(text)
			panic(err)
		}
	}
	if os.Getenv("ONNXRUNTIME_LIB") == "" {
		lib, _ := filepath.Abs("../../../bin/libonnxruntime.so.1")
		os.Setenv("ONNXRUNTIME_LIB", lib)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// Output collects what a process says while others read it.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// FreeAddress is an address of host that nobody listens on now, of a port that the system gives no outgoing connection.
func FreeAddress(t testing.TB, host string) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(10000+rand.IntN(20000))))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
}
