package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/message"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/net/certs"
	netserver "promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/federation/privacy/secagg"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
	"promptfed/tools/e2e/proctest"
)

const secureConfig = `
name: attack
method: promptfl
options: {tokens: 2}
backbones: [DIR/bundle]
data: {set: synthetic, shots: 4,
  generator: {classes: [circle, square], domains: [cartoon], train: 20, test: 20, size: 32}}
partition: {kind: iid, clients: 5}
train: {rounds: 3, lr: 0.1}
eval: {every: 3}
secure_aggregation: {threshold: 0.6}
runtime: {cache: DIR/cache, workers: 1}
`

// lyingServer is a server under secure aggregation with certificates of its own authority. It sends arbitrary requests
// to client 0, which is promptfed join, and to its other clients, which are in this process.
type lyingServer struct {
	message.Cohort // nil: only Run is called
	*server
	hub    *netserver.Server
	run    *experiment.Protocol
	guards map[int]message.Guard
	victim *process
	heard  proctest.Output // the log of the server
	order  message.Instruction
	asked  []message.Reply // of client 0 to the newest instruction
}

func newLyingServer(t *testing.T) *lyingServer {
	t.Helper()
	s := &lyingServer{server: &server{t: t, dir: t.TempDir(), address: busytest.Address(t, "127.0.0.1")},
		guards: map[int]message.Guard{}}
	call(t, "convert", "../../../models/bundle/converted/testdata/huggingface", "--out", s.at("bundle"))
	path := filetest.Write(t, s.at("attack.yaml"), strings.ReplaceAll(secureConfig, "DIR", s.dir))
	call(t, "certs", s.at("certs"), "--clients", "5")
	conf, err := configs.Open(path, nil)
	goldentest.NoError(t, err)
	if s.run, err = experiment.OpenServer(conf.Config, false); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&s.heard, nil))
	with := s.tls(s.at("certs"), "server")
	who, err := certs.FromTLS(with)
	goldentest.NoError(t, err)
	set := netserver.Settings{Listen: s.address, ID: wire.NewID(), Dir: s.at("hub"), Clients: 5, Quorum: 0.5,
		RunSpec: s.run.Experiment.RunSpec(), Method: s.run.Experiment.Method, Identity: who,
		Masked: true, Log: log}
	if set.Config, err = configs.YAML(s.run.Config.Invitation()); err != nil {
		t.Fatal(err)
	}
	if s.hub, err = netserver.Open(set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.hub.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.heard.String())
		}
	})
	s.join()
	terms, err := s.hub.Wait(busytest.Context(t), 1)
	goldentest.NoError(t, err)
	s.run = s.run.RunsAs(terms)
	s.order = message.Instruction{Kind: message.Train, Total: 5, Shared: tensor.Map{}, Broadcast: tensor.Map{}}
	for _, p := range s.run.Experiment.Method.Params(s.hub.Participants()[0].Task) {
		if p.Owner == method.Shared {
			s.order.Shared[p.Name] = method.Draw(1, 0, p.Name, p.Shape, p.Std)
		}
	}
	for k := 1; k < 5; k++ {
		s.honest(k, s.tls(s.at("certs"), certs.UserOf(k)))
	}
	return s
}

// join starts client 0.
func (s *lyingServer) join() {
	s.victim = launch(s.t, programs.Promptfed, "join", s.url(), "--client", "0", "--config", s.at("attack.yaml"),
		"--partition", "--state", s.at("client-0"), "--tls", s.at("certs"), "--log", "json")
	s.victim.says("joined")
}

// honest is a client in this process that moves by 0.25 in all numbers.
func (s *lyingServer) honest(k int, with *tls.Config) {
	s.t.Helper()
	who, err := certs.FromTLS(with)
	if err != nil {
		s.t.Fatal(err)
	}
	dir := s.t.TempDir()
	signs, err := who.Signatures(dir)
	if err == nil {
		s.guards[k], err = s.run.Aggregation.GuardAt(k, secure.Side{Run: s.hub.Status().Run, Dir: dir, Who: signs,
			Agreed: s.run.Experiment.RunSpec().String()})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// Run is a cohort of all five.
func (s *lyingServer) Run(ctx context.Context, o message.Instruction) (replies []message.Reply, err error) {
	for _, k := range o.Clients {
		one := o.ForClient(k)
		if k == 0 {
			if s.asked, err = s.hub.Run(ctx, one); err != nil {
				return nil, err
			}
			replies = append(replies, s.asked...)
			continue
		}
		r := message.Reply{Client: k, Upload: method.Upload{Client: k, N: 1}}
		if o.Kind == message.Compute {
			r.Upload.Extra, _, err = s.guards[k].Answer(k, one)
		} else {
			r.Upload.Shared = o.Shared.Clone()
			for _, x := range r.Upload.Shared {
				for i := range x.Data {
					x.Data[i] += 0.25
				}
			}
			err = s.guards[k].Protect(k, one, &r.Upload, &message.Stats{})
		}
		if err == nil {
			replies = append(replies, r)
		}
	}
	return replies, nil
}

// round lets clients train in a new session, as a server does that forgot all earlier sessions.
func (s *lyingServer) round(members, threshold int, lenient bool, number int, clients ...int) ([]message.Reply, error) {
	s.t.Helper()
	conf := s.run.Config.SecureAggregation
	weighting, beside, err := methods.AveragedUploads(s.run.Experiment.Method)
	if err != nil {
		s.t.Fatal(err)
	}
	conf.Threshold = float64(threshold) / float64(members)
	layer, err := secure.New(conf, weighting, beside, 5, members)
	if err != nil {
		s.t.Fatal(err)
	}
	p := secure.Side{Run: s.hub.Status().Run, Agreed: s.run.Experiment.RunSpec().String()}
	if p.Who, err = s.hub.Signatures(); err != nil {
		s.t.Fatal(err)
	}
	if lenient {
		p.Who = &anybody{}
	}
	around, err := layer.WrapAt(p)
	if err != nil {
		s.t.Fatal(err)
	}
	o := s.order
	o.Round, o.Clients = number, clients
	return around(s).Run(busytest.Context(s.t), o)
}

// anybody accepts all signatures, as a server may that counts invented clients.
type anybody struct{ secagg.LocalIdentity }

func (*anybody) Certified() bool                          { return true }
func (*anybody) Verify(int, []byte, []byte, []byte) error { return nil }

// refused fails unless client 0 logged in one line why it does not answer, and sent nothing.
func (s *lyingServer) refused(words string) {
	s.t.Helper()
	if len(s.asked) > 0 {
		s.t.Errorf("client 0 answers where it should say %q", words)
	}
	for _, log := range []*proctest.Output{&s.victim.log, &s.heard} {
		if !strings.Contains(log.String(), words) {
			s.t.Errorf("nobody says %q", words)
		}
	}
}

// A server with another authority computes sums of five clients, one of which is promptfed join, and gets nothing else
// from it: no second session of a round without one client, whose difference would be the move of that client, not even
// after the client was killed and restarted; and no sum of two of five, with or without invented clients.
func TestSecondSum(t *testing.T) {
	s := newLyingServer(t)
	all, err := s.round(5, 3, false, 0, 0, 1, 2, 3, 4)
	if err != nil || len(all) != 1 || fmt.Sprint(all[0].Sum) != "[0 1 2 3 4]" {
		t.Fatalf("%+v, %v", all, err)
	}
	moved := false // the sum is right, and client 0 is in it
	for name, x := range all[0].Upload.Shared {
		for i, v := range x.Data {
			d := float64(v-s.order.Shared[name].Data[i]) - 0.2 // 4/5 of the others' 0.25
			moved = moved || d > 1e-6 || d < -1e-6
		}
	}
	if !moved {
		t.Error("client 0 did not move")
	}
	for again := range 2 {
		if r, err := s.round(5, 3, false, 0, 0, 1, 2, 3); err == nil && fmt.Sprint(r[0].Sum) != "[]" {
			t.Errorf("a second sum of the same round: %+v", r)
		}
		s.refused("a second session of the same round is refused")
		if again == 0 {
			s.victim.Kill()
			s.join()
		}
	}
	if r, err := s.round(2, 2, false, 1, 0, 1); err == nil && fmt.Sprint(r[0].Sum) != "[]" {
		t.Error("a sum of two of five clients")
	}
	s.refused("the server's threshold is 2; this client's configuration requires sums of 3 of 5 clients")

	other := &server{t: t, dir: t.TempDir()} // an authority of the server
	call(t, "certs", other.at("certs"), "--clients", "5")
	for k := 2; k < 5; k++ {
		s.honest(k, other.tls(other.at("certs"), certs.UserOf(k)))
	}
	if r, err := s.round(5, 3, true, 2, 0, 1, 2, 3, 4); err == nil && len(r[0].Sum) > 0 &&
		fmt.Sprint(r[0].Sum) != "[2 3 4]" {
		t.Errorf("clients that the server invented are in a sum with others: %v", r[0].Sum)
	}
	s.refused("the certificate of client-2: x509")
	if b, err := os.ReadFile(s.at("client-0", secure.LogFile)); err != nil || strings.Count(string(b),
		`"refused":`) != 4 || strings.Count(string(b), `"survivors":[0,1,2,3,4]`) != 1 {
		t.Errorf("%v\n%s", err, b)
	}
}
