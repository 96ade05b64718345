package attack

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
)

// spreadConfig is an experiment that trains: two clients in two rounds of a second.
const spreadConfig = `
name: attack
method: fedpha
options: {global_tokens: 4, local_tokens: [4, 6], projector: exact-null}
backbones: [DIR/bundle]
data: {set: drawn, shots: 4, drawn: {classes: [circle, square], domains: [cartoon, sketch], train: 6, test: 4, size: 32}}
partition: {kind: iid, clients: 2}
train: {rounds: 2, lr: 0.01, epochs: 2, batch: 4}
runtime: {cache: DIR/cache, workers: 1}
`

// The holder of the certificate worker does jobs of its own, and nothing else: it hears and answers for no other worker,
// though that has the same certificate, for no client and for no run, and has nothing of JetStream. Others' certificates
// are no worker's. A run whose only honest worker has a dishonest one beside it learns what one process does.
func TestWorker(t *testing.T) {
	s := &server{t: t, dir: t.TempDir(), address: freeAddress(t), done: make(chan struct{})}
	command := func(args ...string) *exec.Cmd {
		c := exec.Command(program, args...)
		c.Stdout, c.Stderr = &s.log, &s.log
		return c
	}
	err := os.WriteFile(s.at("attack.yaml"), []byte(strings.ReplaceAll(spreadConfig, "DIR", s.dir)), 0o600)
	for _, args := range [][]string{
		{"convert", "../../models/bundle/testdata/huggingface", "--out", s.at("bundle")},
		{"certs", s.at("certs"), "--clients", "1"},
		{"run", s.at("attack.yaml"), "--out", s.at("alone")},
	} {
		if err == nil {
			err = command(args...).Run()
		}
	}
	run := command("run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster", "listen://"+s.address, "--tls",
		s.at("certs"))
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		t.Fatal(err, s.log.String())
	}
	go func() {
		s.err = run.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		run.Process.Kill()
		<-s.done
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.says("workers take part with")
	mine, other := transport.NewID(), transport.NewID()
	nc, denied := s.intruder("worker", transport.WorkerOptions("default", mine)...)
	work := "pf.default.work."
	for _, subject := range append(append([]string{work + "from." + other + ".0.reply", work + "to." + mine + ".0.order",
		work + "from." + mine + ".reply", "pf.default.from.0.reply", "pf.default.to.0.order", "pf.default.status",
		"pf.other.work.from." + mine + ".0.hello"}, jetStream...), others...) {
		denies(t, nc, denied, subject)
	}
	for _, subject := range []string{">", "pf.>", work + ">", work + "to.>", work + "to." + other + ".>",
		work + "from." + mine + ".0.reply", "pf.default.to.0.>", "pf.default.from.0.*", "$JS.>", "$SYS.>", "_INBOX.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !strings.Contains(err.Error(), "Permissions Violation for Subscription") {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("a worker may listen to %s", subject)
		}
	}
	for _, reply := range append(append([]string{work + "to." + other + ".0.order"}, jetStream...), others...) {
		if err := nc.PublishRequest(work+"from."+mine+".0.hello", reply, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range verbs { // as much as it can
		for range 500 {
			nc.Publish(work+"from."+mine+".0."+verb, make([]byte, 1000))
		}
	}
	for _, name := range []string{"client-0", "status", "server"} {
		nc, err := nats.Connect("tls://"+s.address, nats.Secure(s.tls(s.at("certs"), name)), nats.NoReconnect(),
			nats.Name("worker-"+mine))
		if err == nil {
			nc.Close()
			t.Errorf("the certificate of %s is a worker's", name)
		}
	}
	honest := command("work", "tls://"+s.address, "--tls", s.at("certs"), "--jobs", "2", "--idle", "2s", "--set",
		"runtime.models="+s.dir, "--set", "runtime.cache="+s.at("cache"))
	if err := honest.Run(); err != nil {
		t.Error(err)
	}
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	want, err := os.ReadFile(s.at("alone", engine.PromptsFile))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(s.at("out", engine.PromptsFile)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the workers learned something else than one process: %v", err)
	}
}

// Where clients join, the certificate worker gets nobody in.
func TestWorkerIsNoClient(t *testing.T) {
	s := serve(t, 1)
	for _, options := range [][]nats.Option{nil, transport.WorkerOptions("default", transport.NewID())} {
		nc, err := nats.Connect("tls://"+s.address, append(options, nats.Secure(s.tls(s.at("certs"), "worker")),
			nats.NoReconnect())...)
		if err == nil {
			nc.Close()
			t.Error("a worker is let in")
		}
	}
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}
