package attack

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine/record"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
)

// Only the certificates worker and server of the run's own authority are admitted, and a revoked certificate is cut off
// and refused. The run learns what one process learns.
func TestWorker(t *testing.T) {
	t.Parallel()
	s, other := openReal(t), t.TempDir()
	call(t, "certs", filepath.Join(other, "certs"), "--clients", "1")
	s.process = launch(t, programs.Promptfed, "run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster",
		"listen://"+s.address, "--tls", s.at("certs"))
	s.says("start workers with")
	for _, name := range []string{"client-0", "status"} {
		s.notAdmitted(nats.Secure(s.tls(s.at("certs"), name)))
	}
	foreign := s.tls(filepath.Join(other, "certs"), "worker")
	foreign.RootCAs = s.tls(s.at("certs"), "worker").RootCAs
	s.notAdmitted(nats.Secure(foreign))
	s.notAdmitted(nats.RootCAs(s.at("certs", "ca.pem")))
	stolen := nats.Secure(s.tls(s.at("certs"), "worker"))
	var nc *nats.Conn
	s.until("the connection of a worker", func() (is bool) {
		var err error
		nc, err = nats.Connect("tls://"+s.address, stolen, nats.NoReconnect())
		return err == nil
	})
	defer nc.Close()
	call(t, "certs", s.at("certs"), "--revoke", "worker", "--renew", "worker")
	s.until("the end of a connection with a revoked certificate", nc.IsClosed)
	s.notAdmitted(stolen)
	s.workedAsRun(s.worker())
}

// A worker needs the token.
func TestWorkerToken(t *testing.T) {
	t.Parallel()
	s := openReal(t)
	s.process = launch(t, programs.Promptfed, "run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster",
		"listen://"+s.address, "--token", "secret")
	s.says("nothing is encrypted, the token included")
	s.says("start workers with")
	for _, password := range []string{"", "guess"} {
		began := time.Now()
		if nc, err := nats.Connect("nats://"+s.address, nats.UserInfo("worker", password)); err == nil {
			nc.Close()
			t.Errorf("the token %q is accepted", password)
		}
		ended := time.Now()
		if took := ended.Sub(began); took < 400*time.Millisecond {
			t.Errorf("a wrong token is refused after %v", took)
		}
	}
	s.says("a connection is refused")
	s.workedAsRun(s.work("nats://"+s.address, "--token", "secret"))
}

// notAdmitted fails if a connection to the NATS server with this certificate is possible.
func (s *server) notAdmitted(certificate nats.Option) {
	s.t.Helper()
	nc, err := nats.Connect("tls://"+s.address, certificate, nats.NoReconnect())
	if err == nil {
		nc.Close()
		s.t.Error("a connection is admitted that has no valid certificate of a worker")
	}
}

// work starts an honest worker.
func (s *server) work(url string, more ...string) *process {
	s.t.Helper()
	return launch(s.t, append([]string{programs.Promptfed, "work", url, "--jobs", "2", "--idle", "0", "--set",
		"runtime.models=" + s.dir, "--set", "runtime.cache=" + s.at("cache")}, more...)...)
}

func (s *server) worker() *process {
	s.t.Helper()
	return s.work("tls://"+s.address, "--tls", s.at("certs"))
}

// workedAsRun fails unless the current run, with an honest worker, learns what promptfed run did.
func (s *server) workedAsRun(worker *process) {
	s.t.Helper()
	s.ended()
	if worker.Ended() {
		s.t.Errorf("the worker ended before the run: %v", worker.Ending)
	}
	want := filetest.Read(s.t, s.at("run", record.PromptsFile))
	if got, err := os.ReadFile(s.at("out", record.PromptsFile)); err != nil || !bytes.Equal(got, want) {
		s.t.Errorf("the workers learned something else than one process: %v", err)
	}
}

// With the certificate worker nobody can join a run with clients.
func TestWorkerIsNoClient(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	c, err := tls.Dial("tcp", s.address, s.tls(s.at("certs"), "worker"))
	if err == nil { // the server refuses the certificate after the client's handshake
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "bad certificate") {
		t.Errorf("a worker connects to a server for clients: %v", err)
	}
	s.joins(0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// longRun makes a run last long enough for servers to die during it.
const longRun = "train.rounds=60"

// A cluster of three stock nats-servers keeps the queue when one of them is killed with kill -9 during the run. The run
// waits while two are away, and continues.
func TestWorkerReplicas(t *testing.T) {
	t.Parallel()
	s := openTrial(t)
	call(t, "run", s.at("attack.yaml"), "--set", longRun, "--out", s.at("run"))
	var urls, routes []string
	for range 3 {
		urls = append(urls, "nats://"+busytest.Address(t, "127.0.0.1"))
		routes = append(routes, "nats://"+busytest.Address(t, "127.0.0.1"))
	}
	start := func(i int) *process {
		return launch(t, filepath.Join(programs.Dir, "nats-server"), "-c", s.at(fmt.Sprintf("nats-%d.conf", i)))
	}
	var nodes []*process
	for i := range urls {
		text := fmt.Sprintf("server_name: n%d\nlisten: %q\njetstream {store_dir: %q}\ncluster {\n name: c\n "+
			"listen: %q\n routes: [%s]\n}\n", i, strings.TrimPrefix(urls[i], "nats://"), s.at(fmt.Sprint("store", i)),
			strings.TrimPrefix(routes[i], "nats://"), strings.Join(routes, ", "))
		filetest.Write(t, s.at(fmt.Sprintf("nats-%d.conf", i)), text)
		nodes = append(nodes, start(i))
	}
	nodes[0].says("Server is ready")
	nodes[0].until("a leader of the cluster", func() bool {
		nc, err := nats.Connect(strings.Join(urls, ","))
		if err != nil {
			return false
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err == nil {
			_, err = js.AccountInfo(t.Context())
		}
		return err == nil
	})
	s.process = launch(t, programs.Promptfed, "run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster",
		strings.Join(urls, ","), "--set", longRun)
	worker := s.work(strings.Join(urls, ","))
	s.says("a worker joined")
	s.says("round 1")
	nodes[1].Kill()
	s.says("round 10")
	if strings.Contains(s.log.String(), "lost the queue") {
		t.Error("the queue has no replicas")
	}
	nodes[2].Kill()
	busytest.Delay(2 * time.Second)
	start(1)
	start(2)
	s.workedAsRun(worker)
}

// A stock nats-server with JetStream, which is killed with kill -9 during the run and started again, gives the same;
// one without JetStream is refused in one line.
func TestWorkerForeignServer(t *testing.T) {
	t.Parallel()
	s := openTrial(t)
	call(t, "run", s.at("attack.yaml"), "--set", longRun, "--out", s.at("run"))
	conf := s.at("nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream {store_dir: %q}\ntls {\n cert_file: %q\n key_file: %q\n ca_file: %q\n "+
		"verify: true\n}\n", s.address, s.at("store"), s.at("certs", "server.pem"), s.at("certs", "server-key.pem"),
		s.at("certs", "ca.pem"))
	start := func(text string) *process {
		filetest.Write(t, conf, text)
		p := launch(t, filepath.Join(programs.Dir, "nats-server"), "-c", conf)
		p.says("Server is ready")
		return p
	}
	run := []string{"run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster", "tls://" + s.address, "--tls",
		s.at("certs"), "--set", longRun}
	plain := start(strings.ReplaceAll(text, "jetstream", "# jetstream"))
	out, err := exec.Command(programs.Promptfed, run...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "has no JetStream for this user") {
		t.Errorf("without JetStream: %v, %s", err, out)
	}
	plain.Kill()
	first := start(text)
	s.process = launch(t, append([]string{programs.Promptfed}, run...)...)
	worker := s.work("tls://"+s.address, "--tls", s.at("certs"))
	s.says("a worker joined")
	s.says("round 1")
	first.Kill()
	start(text)
	s.workedAsRun(worker)
	s.says("the NATS server lost the queue")
}
