package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/methodtest"
	netclient "promptfed/federation/net/client"
	"promptfed/runtime/filetest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// trial is one run that must survive.
type trial struct {
	method          string
	clients, rounds int
	workers         int  // of promptfed run --cluster; 0 for promptfed serve and a promptfed join for each client
	certificates    bool // of an authority; without them each side remembers the other's key
	every           int  // rounds between two tests; 0 for 5
	quorum          float64
	deadline        time.Duration
	share           float64       // share of the clients that train in a round
	delay           time.Duration // of every piece of a connection
	damage          float64       // share of the pieces of connections that are changed, or sent twice or late
	repeat          float64       // share of the messages that are sent twice or late; with certificates only
	options         string        // of the method; empty for those of options
	config          string        // more lines of the configuration
	flags           []string      // more flags of promptfed serve and join
	serveFlags      []string      // more flags of promptfed serve
}

var options = map[string]string{
	"promptfl": "{tokens: 4}",
	"fedpha":   "{global_tokens: 4, local_tokens: [4, 6], projector: exact-null}",
}

const config = `
name: chaos
method: METHOD
options: OPTIONS
backbones: [DIR/bundle]
data: {set: synthetic, shots: 2,
  generator: {classes: [circle, square, star, house], domains: [cartoon, sketch], train: 40, test: 10, size: 32}}
partition: {kind: iid, clients: CLIENTS}
train: {rounds: ROUNDS, lr: 0.01, epochs: 1, batch: 4}
participation: SHARE
eval: {every: EVERY, confusion: none}
runtime: {cache: DIR/cache, workers: 1}
`

// members is the number of processes beside the server.
func (tr trial) members() int { return cmp.Or(tr.workers, tr.clients) }

// site is a server, its clients or workers, and the network between them.
type site struct {
	trial
	t       *testing.T
	dir     string
	rand    *rand.Rand
	address string  // of the server
	connect string  // address for clients
	link    network // nil for none
	rogue   *rogue
	server  *process
	joins   []*process
	excused int // ends of the server for which a member's full disk is the reason
}

// open prepares a trial with a network.
func open(t *testing.T, tr trial, seed uint64) *site {
	t.Helper()
	s := prepare(t, tr, seed)
	s.link, s.address = newNetwork(t, s, seed)
	s.connect = s.link.address()
	if tr.certificates {
		s.makeCertificates()
	}
	if tr.repeat > 0 && tr.certificates && tr.workers == 0 && os.Getenv("PROMPTFED_TEST_CHAOS_NETNS") == "" {
		s.connect = s.relayed(seed)
	}
	return s
}

// prepare converts the backbone, writes the configuration, and runs the experiment in one process.
func prepare(t *testing.T, tr trial, seed uint64) *site {
	t.Helper()
	s := &site{trial: tr, t: t, dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 1)), rogue: &rogue{},
		joins: make([]*process, tr.members())}
	launch(t, s.at("convert.log"), programs.Promptfed, "convert",
		"../../../models/bundle/converted/testdata/huggingface", "--out", s.at("bundle")).ends(t)
	if tr.options == "" {
		s.options = options[tr.method]
	}
	text := fill(config+tr.config, "METHOD", tr.method, "OPTIONS", s.options, "DIR", s.dir, "CLIENTS",
		strconv.Itoa(tr.clients), "ROUNDS", strconv.Itoa(tr.rounds), "SHARE", fmt.Sprint(tr.share), "EVERY",
		strconv.Itoa(cmp.Or(tr.every, 5)))
	filetest.Write(t, s.at("chaos.yaml"), text)
	launch(t, s.at("run.log"), programs.Promptfed, "run", s.at("chaos.yaml"), "--out", s.at("run")).ends(t)
	if t.Failed() {
		t.FailNow()
	}
	return s
}

// relayed puts a relay between the clients and the network, which repeats messages, and returns its address.
func (s *site) relayed(seed uint64) string {
	r := newRelay(s.t, s.at("certs"), s.connect, s.clients, func(int, event) bool { return false })
	var mu sync.Mutex
	draw, repeated := rand.New(rand.NewPCG(seed, 4)), 0
	r.repeat = func() bool {
		mu.Lock()
		defer mu.Unlock()
		again := draw.Float64() < s.repeat
		if again {
			repeated++
		}
		return again
	}
	s.t.Cleanup(func() { s.t.Log("repeated messages:", repeated) })
	return r.listener.Addr().String()
}

// fill replaces words by values.
func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

func (s *site) at(name ...string) string { return filepath.Join(append([]string{s.dir}, name...)...) }

func (s *site) client(k int) string { return s.at(fmt.Sprint("client-", k)) }

// makeCertificates makes the certificates of the server and its clients.
func (s *site) makeCertificates() {
	s.t.Helper()
	host, _, _ := strings.Cut(s.address, ":")
	launch(s.t, s.at("certs.log"), programs.Promptfed, "certs", s.at("certs"), "--clients", strconv.Itoa(s.clients),
		"--host", host).ends(s.t)
	s.flags = append(s.flags, "--tls", s.at("certs"))
}

func (s *site) startServer(more ...string) {
	args := []string{programs.Promptfed, "serve", s.at("chaos.yaml"), "--out", s.at("serve"), "--quorum",
		fmt.Sprint(s.quorum), "--deadline", s.deadline.String(), "--largest", "1000000", "--listen", s.address}
	if s.workers > 0 {
		args = []string{programs.Promptfed, "run", s.at("chaos.yaml"), "--out", s.at("serve"), "--cluster",
			"listen://" + s.address}
	}
	if !s.certificates && os.Getenv("PROMPTFED_TEST_CHAOS_NETNS") != "" { // no loopback address
		args = append(args, "--insecure")
	}
	args = append(args, s.serveFlags...)
	s.server = launch(s.t, s.at("serve.log"), append(append(args, s.flags...), more...)...)
}

func (s *site) startJoin(k int) {
	command := []string{programs.Promptfed, "join", "https://" + s.connect, "--client", strconv.Itoa(k),
		"--config", s.at("chaos.yaml"), "--partition", "--state", s.client(k)}
	if s.workers > 0 {
		command = []string{programs.Promptfed, "work", "tls://" + s.connect, "--jobs", "1", "--idle", "0", "--set",
			"runtime.cache=" + s.at("cache"), "--set", "runtime.models=" + s.dir}
	}
	if s.link != nil {
		command = s.link.inside(command...)
	}
	s.joins[k] = launch(s.t, s.at(fmt.Sprintf("join-%d.log", k)), append(command, s.flags...)...)
}

// failed reports whether a process ended by itself with an error. Where all clients must answer, a client that cannot
// write its state ends the run, which continues.
func (s *site) failed() bool {
	if s.excused > 0 && s.server.Ended() && s.server.Ending != nil {
		s.excused--
		s.startServer("--resume")
	}
	for _, p := range append(slices.Clone(s.joins), s.server) {
		if p.Ended() && p.Ending != nil {
			return true
		}
	}
	return false
}

// over reports whether the server and all clients ended by themselves, or one of them failed. The server waits a minute
// at most for clients that fetch the result. If a client comes later, over starts the server again for it. Workers do
// not end.
func (s *site) over() bool {
	if s.failed() || s.workers > 0 || !s.server.Ended() {
		return s.failed() || s.server.Ended()
	}
	all := true
	for k, p := range s.joins {
		all = all && p.Ended()
		if !p.Ended() && netclient.FinishedRun(s.client(k)) == "" {
			s.startServer("--resume")
			return false
		}
	}
	return all
}

// end fails for each process that failed. It kills the others, which would wait forever.
func (s *site) end() {
	s.t.Helper()
	for _, p := range append(slices.Clone(s.joins), s.server) {
		if p.Ended() {
			p.ends(s.t)
		} else {
			p.Kill()
		}
	}
}

// rounds returns the number of rounds that the server has written.
func (s *site) rounds() int {
	b, _ := os.ReadFile(s.at("serve", record.RoundsFile))
	return bytes.Count(b, []byte("\n"))
}

// records reads the rounds of a run folder: each once, in order, and nothing else.
func (s *site) records(dir string) []record.Record {
	s.t.Helper()
	b := filetest.Read(s.t, s.at(dir, record.RoundsFile))
	var out []record.Record
	for line := range bytes.Lines(b) {
		var r record.Record
		if err := json.Unmarshal(line, &r); err != nil || r.Round != len(out) {
			s.t.Errorf("%s: line %d is of round %d: %v", dir, len(out)+1, r.Round, err)
		}
		r.Seconds, r.Phases, r.Warnings = 0, nil, nil // a server knows no zero-shot accuracy to warn of
		out = append(out, r)
	}
	if len(out) != s.trial.rounds {
		s.t.Errorf("%s: %d lines for %d rounds", dir, len(out), s.trial.rounds)
	}
	return out
}

func (s *site) prompts(dir string) tensor.Map {
	s.t.Helper()
	return orttest.Golden(s.t, filepath.Join(dir, record.PromptsFile))
}

// learned returns what the server and its clients have in the end, as one run folder would have it.
func (s *site) learned() tensor.Map {
	s.t.Helper()
	all := s.prompts(s.at("serve"))
	if s.workers > 0 {
		return all
	}
	for k := range s.joins {
		maps.Copy(all, s.prompts(s.client(k)))
	}
	return all
}

// expected returns the result of the experiment in this process if, in every round, only the uploads of the clients in
// the records arrive.
func (s *site) expected(records []record.Record) tensor.Map {
	s.t.Helper()
	conf, err := configs.Open(s.at("chaos.yaml"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx := context.Background()
	task, err := experiment.Open(ctx, conf.Config, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	f, err := experiment.Federate(ctx, task, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	counted := map[[2]int]bool{}
	for _, r := range records {
		for _, k := range r.Clients {
			counted[[2]int{r.Round, k}] = true
		}
	}
	set := f.Settings()
	set.Wrap = methodtest.LoseReplies(func(round, client int) bool { return !counted[[2]int{round, client}] })
	r, err := engine.Run(ctx, f.Experiment, set)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Prompts
}

func (s *site) bytes(m tensor.Map) string {
	s.t.Helper()
	b, err := message.EncodeTensors(m)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}
