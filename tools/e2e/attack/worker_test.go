package attack

import (
	"bytes"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/record"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/workers"
)

// The holder of the certificate worker does its own jobs and nothing else: it hears and answers for no other worker,
// although that has the same certificate, for no client and for no run, and cannot use JetStream. Other certificates
// cannot be a worker. A run with one honest and one dishonest worker learns what one process learns.
func TestWorker(t *testing.T) {
	t.Parallel()
	s := openReal(t)
	s.process = launch(t, programs.Promptfed, "run", s.at("attack.yaml"), "--out", s.at("out"), "--cluster",
		"listen://"+s.address,
		"--tls", s.at("certs"))
	s.says("start workers with")
	mine, other := subjects.NewID(), subjects.NewID()
	nc, denied := s.intruder("worker", workers.ConnOptions("default", mine)...)
	work := "pf.default.work."
	s.workerMayNot(nc, denied, work+"from."+other+".0.reply", work+"to."+mine+".0.order")
	for _, subject := range []string{work + "to.>", work + "to." + other + ".>", work + "from." + mine + ".0.reply"} {
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
	s.workedAsRun()
}

// workerMayNot fails unless NATS denies these subjects to a worker.
func (s *server) workerMayNot(nc *nats.Conn, denied chan error, publish ...string) {
	s.t.Helper()
	id := subjects.NewID()
	for _, subject := range append(append(append(publish, "pf.default.work.from."+id+".reply",
		"pf.default.work.to."+id+".0.order", "pf.other.work.from."+id+".0.hello", "pf.default.from.0.reply",
		"pf.default.status"), jetStream...), others...) {
		denies(s.t, nc, denied, subject)
	}
	for _, subject := range []string{">", "pf.>", "pf.default.work.>", "pf.default.work.from.>", "pf.default.to.0.>",
		"pf.default.from.0.*", "$JS.>", "$SYS.>", "_INBOX.>"} {
		deaf(s.t, nc, denied, subject)
	}
}

// workedAsRun starts an honest worker, and fails unless the current run learns what promptfed run did.
func (s *server) workedAsRun() {
	s.t.Helper()
	worker := launch(s.t, append([]string{programs.Promptfed, "work", "tls://" + s.address, "--jobs", "2", "--idle",
		"2s", "--set",
		"runtime.models=" + s.dir, "--set", "runtime.cache=" + s.at("cache")}, s.link("worker")...)...)
	s.ended()
	worker.ended()
	want, err := os.ReadFile(s.at("run", record.PromptsFile))
	if err != nil {
		s.t.Fatal(err)
	}
	if got, err := os.ReadFile(s.at("out", record.PromptsFile)); err != nil || !bytes.Equal(got, want) {
		s.t.Errorf("the workers learned something else than one process: %v", err)
	}
}

// With the certificate worker nobody can join a run with clients.
func TestWorkerIsNoClient(t *testing.T) {
	t.Parallel()
	s := serve(t, 1)
	for _, options := range [][]nats.Option{nil, workers.ConnOptions("default", subjects.NewID())} {
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

// The same holds for a stock nats-server with the account for workers that promptfed nats-config writes, in both of its
// forms; but workers hear each other's jobs.
func TestWorkerForeignServer(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"file", "operator"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			s := openReal(t)
			flags := []string{"nats-config", "--clients", "1", "--tls", s.at("certs"), "--listen", s.address}
			conf := ""
			var options []nats.Option
			if form == "operator" {
				call(t, append(flags, "--operator", s.at("operator"))...)
				options = append(options, nats.UserCredentials(s.at("operator", "worker.creds")))
			} else {
				conf = call(t, flags...)
			}
			s.ownNATS(conf, "-js", "-sd", s.at("store"))
			s.process = launch(t, append([]string{programs.Promptfed, "run", s.at("attack.yaml"), "--out", s.at("out"),
				"--cluster",
				"tls://" + s.address}, s.link("server")...)...)
			nc, denied := s.intruder("worker", options...)
			s.workerMayNot(nc, denied)
			s.workedAsRun()
		})
	}
}
