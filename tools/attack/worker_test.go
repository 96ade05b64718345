package attack

import (
	"bytes"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
)

// The holder of the certificate worker does jobs of its own, and nothing else: it hears and answers for no other worker,
// though that has the same certificate, for no client and for no run, and has nothing of JetStream. Others' certificates
// are no worker's. A run whose only honest worker has a dishonest one beside it learns what one process does.
func TestWorker(t *testing.T) {
	s := openReal(t)
	s.process = launch(t, program, "run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster", "listen://"+s.address,
		"--tls", s.at("certs"))
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
		deaf(t, nc, denied, subject)
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
	launch(t, program, "work", "tls://"+s.address, "--tls", s.at("certs"), "--jobs", "2", "--idle", "2s", "--set",
		"runtime.models="+s.dir, "--set", "runtime.cache="+s.at("cache")).ended()
	s.ended()
	want, err := os.ReadFile(s.at("run", engine.PromptsFile))
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
