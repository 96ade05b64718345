package chaos

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// programs are what the tests start, built once.
var programs struct{ promptfed, nats string }

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "promptfed-chaos")
	if err != nil {
		panic(err)
	}
	programs.promptfed, programs.nats = filepath.Join(dir, "promptfed"), filepath.Join(dir, "nats-server")
	for out, from := range map[string]string{programs.promptfed: "promptfed/tools/promptfed",
		programs.nats: "github.com/nats-io/nats-server/v2"} {
		if text, err := exec.Command("go", "build", "-o", out, from).CombinedOutput(); err != nil {
			os.Stderr.Write(text)
			panic(err)
		}
	}
	if os.Getenv("ONNXRUNTIME_LIB") == "" {
		lib, _ := filepath.Abs("../../bin/libonnxruntime.so.1")
		os.Setenv("ONNXRUNTIME_LIB", lib)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// process is a program that runs; what it says goes to the end of a file.
type process struct {
	*exec.Cmd
	log  string
	done chan struct{}
	err  error
}

func launch(t testing.TB, log string, command ...string) *process {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &process{Cmd: exec.Command(command[0], command[1:]...), log: log, done: make(chan struct{})}
	p.Stdout, p.Stderr = f, f
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	p.Process.Kill()
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ends waits until the process ends by itself, and complains unless that was well.
func (p *process) ends(t testing.TB, before time.Time) {
	t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%v: %v\n%s", p.Args, p.err, p.tail())
		}
	case <-time.After(time.Until(before)):
		t.Errorf("%v does not end\n%s", p.Args, p.tail())
		p.kill()
	}
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

// freePort is an address of host that nobody listens on now.
func freePort(t testing.TB, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
