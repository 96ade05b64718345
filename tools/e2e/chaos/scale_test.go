package chaos

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
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
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Prompts of CLIP's ViT-B text tower, as in the papers: 16 tokens of width 512.
const tokens, width = 16, 512

const scaleConfig = `
name: scale
method: promptfl
options: {tokens: 16}
data: {shots: 2}
partition: {clients: CLIENTS}
train: {rounds: ROUNDS}
eval: {every: 1000, validate: false}
`

// echo is a client that sends back what it got.
type echo int

// Rounds is 0: the number is not known.
func (echo) Rounds() int { return 0 }

func (e echo) Execute(_ context.Context, o message.Instruction, _ message.ClientState) (message.Reply,
	*message.ClientState, error) {
	r := message.Reply{Client: int(e), Scores: message.Scores{Examples: 1, Global: tested, Personal: tested}}
	if o.Kind == message.Train {
		r.Upload = method.Upload{Client: int(e), N: 1, Shared: o.Shared}
		return r, &message.ClientState{Own: o.Shared}, nil
	}
	return r, nil, nil
}

func (e echo) Finish(message.Instruction, message.ClientState) error { return nil }

// scale is a server as a process, with many clients in this process. Each client has a connection through the proxy and
// its own folder.
type scale struct {
	t               *testing.T
	dir             string
	clients, rounds int
	address         string // of the server
	terms           spec.RunSpec
	proxy           *proxy
}

func (s *scale) config() string { return filepath.Join(s.dir, "scale.yaml") }

func (s *scale) serve(more ...string) *process {
	s.t.Helper()
	return launch(s.t, filepath.Join(s.dir, "serve.log"), append([]string{programs.Promptfed, "serve", s.config(),
		"--out", filepath.Join(s.dir, "serve"), "--listen", s.address, "--quorum", "1", "--deadline", "1h"},
		more...)...)
}

// state returns the folder of a client.
func (s *scale) state(k int) string { return filepath.Join(s.dir, certs.UserOf(k)) }

// waiting reports whether a client does not have the result.
func (s *scale) waiting() bool {
	for k := range s.clients {
		if netclient.FinishedRun(s.state(k)) == "" {
			return true
		}
	}
	return false
}

// start writes the configuration and starts the server.
func (s *scale) start() *process {
	s.t.Helper()
	s.address = busytest.Address(s.t, "127.0.0.1")
	text := fill(scaleConfig, "CLIENTS", strconv.Itoa(s.clients), "ROUNDS", strconv.Itoa(s.rounds))
	filetest.Write(s.t, s.config(), text)
	conf, err := configs.Open(s.config(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := experiment.OpenServer(conf.Config, false)
	if err != nil {
		s.t.Fatal(err)
	}
	s.terms = p.Experiment.RunSpec()
	s.terms.Classes, s.terms.Template = []string{"circle", "square"}, "a {}."
	s.proxy = newProxy(s.t, s.address, 1)
	return s.serve()
}

func (s *scale) join(ctx context.Context, k int) error {
	log := slog.New(slog.DiscardHandler)
	state := s.state(k)
	who, err := certs.Identity{}.WithKey(state)
	if err != nil {
		return err
	}
	l := &netclient.Link{URL: "https://" + s.proxy.address(), Name: certs.UserOf(k), Identity: who, Log: log}
	defer l.Close()
	inv, err := netclient.FetchInvitation(ctx, l, wire.DefaultLargest)
	if err != nil {
		return err
	}
	task := method.ClientSpec{Backbone: "echo", Width: width, Dim: width, VisionWidth: 768, VisionLayers: 12,
		Patches: 196, ImageSize: 224}
	request := wire.JoinRequest{RunSpec: s.terms, Participant: message.Participant{Task: task}, Backbone: "b",
		Tokens: "t", Examples: 1}
	a, err := netclient.NewClient(inv, request, state, echo(k), log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// A server and PROMPTFED_TEST_CHAOS_CLIENTS clients finish their rounds, and TCP carries little more than the tensors.
// With -v the test prints the cost for the server.
func TestScale(t *testing.T) {
	s := &scale{t: t, dir: t.TempDir(), clients: 20, rounds: 20}
	if n, err := strconv.Atoi(os.Getenv("PROMPTFED_TEST_CHAOS_CLIENTS")); err == nil {
		s.clients, s.rounds = n, 2
	}
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	began := time.Now()
	server := s.start()
	var left atomic.Int64
	left.Store(int64(s.clients))
	var all sync.WaitGroup
	for k := range s.clients {
		all.Go(func() {
			defer left.Add(-1)
			if err := s.join(ctx, k); err != nil {
				t.Errorf("client %d: %v", k, err)
			}
		})
	}
	busytest.Until(t, "the end of the run", func() bool {
		if t.Failed() || !server.Ended() {
			return t.Failed()
		}
		if server.Ending == nil && s.waiting() { // the server waits for a minute at most
			server = s.serve("--resume")
			return false
		}
		return server.Ending != nil || left.Load() == 0
	})
	if !t.Failed() {
		server.ends(t)
	}
	cancel()
	all.Wait()
	if t.Failed() {
		return
	}
	m := orttest.Golden(t, filepath.Join(s.dir, "serve", record.PromptsFile))
	size := 4 * tokens * width
	if got := 4 * sizes(m.WithoutPrefix("shared")); got != size {
		t.Fatalf("prompts have %d bytes, not %d", got, size)
	}
	uploads := s.clients * s.rounds
	up, down := int(s.proxy.up.Load()), int(s.proxy.down.Load())
	// In the end every client gets the prompts twice more: for the test, and to keep.
	tensors := uploads*2*size + s.clients*2*size
	cpu := server.ProcessState.UserTime() + server.ProcessState.SystemTime()
	t.Logf("%d clients, %d rounds in %.1f s", s.clients, s.rounds, time.Since(began).Seconds())
	t.Logf("TCP: %d bytes up, %d down; %.2f %% more than the tensors (%d bytes); %.0f bytes a client and round", up,
		down, 100*(float64(up+down)/float64(tensors)-1), tensors, float64(up+down)/float64(uploads))
	t.Logf("server: %.2f ms of CPU an upload, %.1f s in all", cpu.Seconds()*1000/float64(uploads), cpu.Seconds())
	if s.rounds >= 20 && float64(up+down) > 1.03*float64(tensors) {
		t.Error("that is more than 3 % beside the tensors")
	}
}

func sizes(m tensor.Map) (n int) {
	for _, x := range m {
		n += x.Len()
	}
	return n
}

// tested is what a client sends of one test example, which it classifies correctly.
var tested = metrics.Compute(metrics.Examples{Scores: tensor.New(1, 2), Labels: []int64{0}}, false)
