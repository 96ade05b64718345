// Package proctest holds helpers for tests that start promptfed: building of programs, output of processes, and free
// addresses. Only tests in tools/e2e import it.
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

// Programs are the paths of the programs that tests start.
type Programs struct{ Promptfed, NATS string }

// Main builds the programs into *p, runs the tests of a package below tools/e2e and exits. A TestMain calls it.
func Main(m *testing.M, p *Programs) {
	dir, err := os.MkdirTemp("", "promptfed-test")
	if err != nil {
		panic(err)
	}
	*p = Programs{filepath.Join(dir, "promptfed"), filepath.Join(dir, "nats-server")}
	for out, from := range map[string]string{p.Promptfed: "promptfed/tools/promptfed",
		p.Promptfed + "-net": "promptfed/tools/promptfed-net", p.NATS: "github.com/nats-io/nats-server/v2"} {
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

// Output collects the output of a process while others read it.
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

// FreeAddress returns an address of host on which nobody listens now. The system uses its port for no outgoing
// connection.
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
