package attack

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/net/certs"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// realConfig is an experiment that trains: two clients with private prompts, in six rounds of one second.
const realConfig = `
name: attack
method: fedpha
options: {global_tokens: 4, local_tokens: [4, 6], projector: exact-null}
backbones: [DIR/bundle]
data: {set: synthetic, shots: 4,
  generator: {classes: [circle, square, star, house], domains: [cartoon, sketch], train: 6, test: 4, size: 32}}
partition: {kind: iid, clients: 2}
train: {rounds: 6, lr: 0.01, epochs: 2, batch: 4}
eval: {every: 3}
runtime: {cache: DIR/cache, workers: 1}
`

// openReal prepares a run of real processes, serve and two joins, and computes what promptfed run learns.
func openReal(t *testing.T) *server {
	t.Helper()
	s := openTrial(t)
	call(t, "run", s.at("attack.yaml"), "--out", s.at("run"))
	return s
}

// openTrial prepares configuration, bundle and certificates for serve and join as processes.
func openTrial(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), address: busytest.Address(t, "127.0.0.1"), rounds: 6}
	call(t, "convert", "../../../models/bundle/converted/testdata/huggingface", "--out", s.at("bundle"))
	err := os.WriteFile(s.at("attack.yaml"), []byte(strings.ReplaceAll(realConfig, "DIR", s.dir)), 0o644)
	goldentest.NoError(t, err)
	call(t, "certs", s.at("certs"), "--clients", "3")
	return s
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// serveReal starts the server.
func (s *server) serveReal(more ...string) {
	s.serveTrial(append([]string{"--quorum", "1"}, more...)...)
}

// joinReal starts a client.
func (s *server) joinReal(client int) *process { return s.joinAt(s.url(), client) }

// joinAt starts a client of a server at some address.
func (s *server) joinAt(url string, client int) *process {
	s.t.Helper()
	return launch(s.t, programs.Promptfed, "join", url, "--client", fmt.Sprint(client), "--config", s.at("attack.yaml"),
		"--partition", "--state", s.at(certs.UserOf(client)), "--tls", s.at("certs"))
}

// sameAsRun fails unless server and clients learned what promptfed run did, byte for byte.
func (s *server) sameAsRun() {
	s.t.Helper()
	all := tensor.Map{}
	for _, dir := range []string{"out", "client-0", "client-1"} {
		m := orttest.Golden(s.t, s.at(dir, record.PromptsFile))
		maps.Copy(all, m)
	}
	want := orttest.Golden(s.t, s.at("run", record.PromptsFile))
	a, err := message.EncodeTensors(all)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := message.EncodeTensors(want)
	if err != nil {
		s.t.Fatal(err)
	}
	if string(a) != string(b) {
		s.t.Error("server and clients learned something else than one process")
	}
}
