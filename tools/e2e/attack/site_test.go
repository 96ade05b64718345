package attack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
	"promptfed/federation/privacy/secagg"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
	"promptfed/tools/e2e/proctest"
)

// programs are the programs that tests start, one for all tests.
var programs proctest.Programs

func TestMain(m *testing.M) {
	if os.Getenv(flooder) != "" {
		runFlooder()
	}
	proctest.Main(m, &programs, "github.com/nats-io/nats-server/v2")
}

// process is a running program with its output.
type process struct {
	*proctest.Child
	t   *testing.T
	log proctest.Output
}

// launch starts a program that ends with the test.
func launch(t *testing.T, command ...string) *process {
	t.Helper()
	p, c := &process{t: t}, exec.Command(command[0], command[1:]...)
	c.Stdout, c.Stderr = &p.log, &p.log
	p.Child = proctest.Start(t, c)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%v\n%s", p.Args, p.log.String())
		}
	})
	return p
}

// says waits until the process prints something.
func (p *process) says(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%q", text), func() bool { return strings.Contains(p.log.String(), text) })
}

// until waits for something that happens before the process ends.
func (p *process) until(what string, happened func() bool) {
	p.t.Helper()
	busytest.Until(p.t, what, func() bool {
		over := p.Ended()
		did := happened()
		if !did && over {
			p.t.Fatalf("%v ended without %s: %v", p.Args, what, p.Ending)
		}
		return did
	})
}

// ended waits until the process ends successfully.
func (p *process) ended() {
	p.t.Helper()
	select {
	case <-p.Done:
	case <-busytest.Hung(p.t):
		p.t.Fatalf("%v does not end", p.Args)
	}
	if p.Ending != nil {
		p.t.Fatalf("%v failed: %v", p.Args, p.Ending)
	}
}

// call runs promptfed until it ends successfully, and returns its output.
func call(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(programs.Promptfed, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("promptfed %v: %v: %s", args, err, out)
	}
	return string(out)
}

// server is promptfed serve as a process.
type server struct {
	*process
	t       *testing.T
	dir     string
	address string // HOST:PORT
	terms   spec.RunSpec
	rounds  int
	plain   bool                 // without certificates
	args    []string             // of the process
	secure  *experiment.Protocol // of clients under secure aggregation; nil for none
	guards  sync.Mutex
	held    atomic.Int64 // clients of this process answer so many rounds; 0 for all
}

const config = `
name: attack
method: promptfl
options: {tokens: 4}
data: {shots: 2}
partition: {clients: 3}
train: {rounds: ROUNDS}
eval: {every: 1000, validate: false}
`

// serve starts a server with certificates for three clients.
func serve(t *testing.T, rounds int, flags ...string) *server {
	t.Helper()
	return serveWith(t, "", rounds, flags...)
}

// serveWith is serve with an existing folder of certificates.
func serveWith(t *testing.T, certs string, rounds int, flags ...string) *server {
	t.Helper()
	address := busytest.Address(t, "127.0.0.1")
	return serveAt(t, address, certs, rounds, append([]string{"--listen", address}, flags...)...)
}

// filesLimit is the limit of open files of a server, if a test sets it.
const filesLimit = "PROMPTFED_TEST_FILES"

// serveAt is serve with an address, and with an existing folder of certificates unless that is empty.
func serveAt(t *testing.T, address, certs string, rounds int, flags ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), address: address, rounds: rounds, plain: slices.Contains(flags, "--token")}
	path := filetest.Write(t, s.at("attack.yaml"), strings.ReplaceAll(config, "ROUNDS", fmt.Sprint(rounds)))
	var sets []string // the changes of --set and the source of noise are among the terms of both sides
	for i, flag := range flags {
		if flag == "--set" {
			sets = append(sets, flags[i+1])
		}
	}
	conf, err := configs.Open(path, sets)
	goldentest.NoError(t, err)
	if certs != "" {
		err = os.Symlink(certs, s.at("certs"))
	} else {
		call(t, "certs", s.at("certs"), "--clients", fmt.Sprint(conf.Partition.Clients))
	}
	goldentest.NoError(t, err)
	p, err := experiment.OpenServer(conf.Config, slices.Contains(flags, "--insecure-dp"))
	goldentest.NoError(t, err)
	s.terms = p.Experiment.RunSpec()
	s.terms.Classes, s.terms.Template = []string{"circle", "square"}, "a {}."
	if conf.SecureAggregation.Enabled() {
		s.secure = p.RunsAs(s.terms)
	}
	args := append([]string{"serve", path, "--out", s.at("out")}, flags...)
	if !s.plain {
		args = append(args, "--tls", s.at("certs"))
	}
	s.args = args
	s.start()
	return s
}

// start starts the process, also again with more flags.
func (s *server) start(more ...string) {
	s.t.Helper()
	command := []string{programs.Promptfed}
	if limit := os.Getenv(filesLimit); limit != "" {
		command = []string{"sh", "-c", "ulimit -n " + limit + `; exec "$0" "$@"`, programs.Promptfed}
	}
	s.process = launch(s.t, slices.Concat(command, s.args, more)...)
	s.says("waiting for clients")
}

func (s *server) at(name ...string) string { return filepath.Join(append([]string{s.dir}, name...)...) }

// ends waits until the run completes successfully, and returns its rounds.
func (s *server) ends() []record.Record {
	s.t.Helper()
	s.ended()
	out := s.records()
	if len(out) != s.rounds {
		s.t.Fatalf("%d rounds of %d", len(out), s.rounds)
	}
	return out
}

// records returns the rounds so far.
func (s *server) records() (out []record.Record) {
	s.t.Helper()
	b, err := os.ReadFile(s.at("out", record.RoundsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var r record.Record
		if !bytes.HasSuffix(line, []byte("\n")) { // being written
			break
		}
		if err := json.Unmarshal(line, &r); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// runs waits until a round is over.
func (s *server) runs() {
	s.t.Helper()
	s.recorded(1)
}

// recorded waits until so many rounds are over, and returns them.
func (s *server) recorded(rounds int) []record.Record {
	s.t.Helper()
	s.until(fmt.Sprint(rounds, " rounds"), func() bool {
		b, _ := os.ReadFile(s.at("out", record.RoundsFile)) // which records parses
		return bytes.Count(b, []byte("\n")) >= rounds
	})
	return s.records()
}

// hold lets the clients of this process answer only the first rounds, so that the run lasts until another call. 0 lets
// them answer all.
func (s *server) hold(rounds int) { s.held.Store(int64(rounds)) }

// waits waits until a client may answer.
func (s *server) waits(ctx context.Context, o message.Instruction) (err error) {
	for n := s.held.Load(); n > 0 && int64(o.Round) >= n && err == nil; n = s.held.Load() {
		err = wait.For(ctx, time.Millisecond)
	}
	return err
}

// never is what a client waits for that is silent.
func never(ctx context.Context, _ message.Instruction) error {
	<-ctx.Done()
	return ctx.Err()
}

// tls returns the TLS configuration of the holder of a certificate.
func (s *server) tls(folder, name string) *tls.Config {
	s.t.Helper()
	ca := filetest.Read(s.t, s.at("certs", "ca.pem"))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	conf := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, name+".pem"), filepath.Join(folder, name+"-key.pem"))
		if err != nil {
			s.t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf
}

// part is a client that uploads the parameters that it got, moved by one. The average moves by one too, unless it
// contains another upload.
type part struct {
	client int
	waits  func(ctx context.Context, o message.Instruction) error // before an answer; nil for what hold says
	claims int                                                    // examples; 0 for the 10 of an honest client
	// largest is the number of bytes that it accepts at a time; 0 for that of promptfed join
	largest int
	lie     func(r *message.Reply) // nil for an honest client
	says    func(c *wire.JoinRequest)
	sees    func(o message.Instruction) // receives the instructions; may be nil
	guard   message.Guard               // of secure aggregation; nil for none
	// lies changes the result of the guard in a step of secure aggregation; "train" stands for its vector. nil for an
	// honest client.
	lies func(o message.Instruction, up tensor.Map)
	// signs is the identity of the guard of a liar; nil for that of the client.
	signs func(own secagg.Identity) secagg.Identity
}

func (p part) examples() int { return cmp.Or(p.claims, 10) }

func (part) Rounds() int { return 0 }

func (p part) Execute(ctx context.Context, o message.Instruction, _ message.ClientState) (message.Reply,
	*message.ClientState, error) {
	if err := p.waits(ctx, o); err != nil {
		return message.Reply{}, nil, err
	}
	if p.sees != nil {
		p.sees(o)
	}
	if p.guard != nil && o.Kind == message.Compute {
		up, _, err := p.guard.Answer(p.client, o)
		if err == nil && p.lies != nil {
			p.lies(o, up)
		}
		return message.Reply{Client: p.client, Upload: method.Upload{Client: p.client, N: 1, Extra: up}}, nil, err
	}
	r := message.Reply{Client: p.client, Scores: message.Scores{Examples: 1, Global: tested, Personal: tested}}
	if o.Kind != message.Train {
		return r, nil, nil
	}
	r.Upload = method.Upload{Client: p.client, N: p.examples(), Shared: o.Shared.Clone()}
	for _, t := range r.Upload.Shared {
		for i := range t.Data {
			t.Data[i]++
		}
	}
	if p.lie != nil {
		p.lie(&r)
	}
	if p.guard != nil {
		if err := p.guard.Protect(p.client, o, &r.Upload, &r.Stats); err != nil {
			return r, nil, err
		}
		if p.lies != nil {
			p.lies(o, r.Upload.Extra)
		}
	}
	return r, &message.ClientState{Own: o.Shared}, nil
}

func (part) Finish(message.Instruction, message.ClientState) error { return nil }

// url returns the address for clients.
func (s *server) url() string { return "https://" + s.address }

// linkOf returns the way to the server of the holder of a certificate, or without certificates of a key in a folder.
func (s *server) linkOf(user string) (*netclient.Link, error) {
	l := &netclient.Link{URL: s.url(), Name: user, Log: slog.New(slog.DiscardHandler)}
	var err error
	if s.plain {
		l.Token = "secret"
		l.Identity, err = l.Identity.WithKey(s.at(user))
	} else {
		l.Identity, err = certs.FromTLS(s.tls(s.at("certs"), user))
	}
	return l, err
}

// status returns the status of the run.
func (s *server) status() (*wire.Status, error) {
	l, err := s.linkOf(certs.StatusUser)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.FetchStatus(busytest.Context(s.t))
}

// invited connects as a client, and returns its invitation and its request to join.
func (s *server) invited(ctx context.Context, p part) (l *netclient.Link, inv *netclient.Invitation,
	request *wire.JoinRequest, err error) {
	if l, err = s.linkOf(certs.UserOf(p.client)); err != nil {
		return nil, nil, nil, err
	}
	if inv, err = netclient.FetchInvitation(ctx, l, cmp.Or(p.largest, wire.DefaultLargest)); err != nil {
		l.Close()
		return nil, nil, nil, err
	}
	return l, inv, s.request(p), nil
}

// request returns the request to join of a client.
func (s *server) request(p part) *wire.JoinRequest {
	task := method.ClientSpec{Backbone: "echo", Width: 512, Dim: 512, VisionWidth: 768, VisionLayers: 12, Patches: 196,
		ImageSize: 224}
	return &wire.JoinRequest{RunSpec: s.terms, Participant: message.Participant{Task: task}, Backbone: "b",
		Tokens: "t", Examples: p.examples()}
}

// join runs one client until its run is over.
func (s *server) join(ctx context.Context, p part) error {
	l, inv, request, err := s.invited(ctx, p)
	if err != nil {
		return err
	}
	defer l.Close()
	if p.says != nil {
		p.says(request)
	}
	user := certs.UserOf(p.client)
	if s.secure != nil {
		request.Examples = 0 // which no server may know
		own, err := inv.Signatures(s.at(user))
		if err != nil {
			return err
		}
		side := secure.Side{Run: inv.Run, Dir: s.at(user), Who: own}
		if p.signs != nil {
			side.Who = p.signs(own)
		}
		if p.guard, err = s.guardOf(p.client, side); err != nil {
			return err
		}
	}
	if p.waits == nil {
		p.waits = s.waits
	}
	a, err := netclient.NewClient(inv, *request, s.at(user), p, l.Log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// guardOf returns the guard of a client under secure aggregation.
func (s *server) guardOf(client int, p secure.Side) (message.Guard, error) {
	s.guards.Lock()
	defer s.guards.Unlock()
	p.Agreed = s.secure.Experiment.RunSpec().String()
	return s.secure.Aggregation.GuardAt(client, p)
}

// joins starts clients, which must end successfully.
func (s *server) joins(which ...int) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, k := range which {
		all.Go(func() {
			if err := s.join(ctx, part{client: k}); err != nil && ctx.Err() == nil {
				s.t.Errorf("client %d: %v", k, err)
			}
		})
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			cancel()
		}
		all.Wait()
		cancel()
	})
}

// counted fails unless every round counts exactly these clients.
func counted(t *testing.T, records []record.Record, which ...int) {
	t.Helper()
	for _, r := range records {
		if fmt.Sprint(r.Clients) != fmt.Sprint(which) {
			t.Errorf("round %d counts clients %v, not %v", r.Round, r.Clients, which)
		}
	}
}

// tested is what a client sends of one test example, which it classifies correctly.
var tested = metrics.Compute(metrics.Examples{Scores: tensor.New(1, 2), Labels: []int64{0}}, false)
