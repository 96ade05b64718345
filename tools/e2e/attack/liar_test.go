package attack

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// learned fails unless every shared parameter moved by a given amount from its initial value, which is near 0.
func (s *server) learned(move float64) {
	s.t.Helper()
	m := orttest.Golden(s.t, s.at("out", record.PromptsFile))
	shared := m.WithoutPrefix("shared")
	for _, name := range shared.Names() {
		for i, v := range shared[name].Data {
			if !(math.Abs(float64(v)-move) < 0.2) { // initial values have a standard deviation of 0.02
				s.t.Fatalf("%s: element %d is %v, not about %v", name, i, v, move)
			}
		}
	}
}

// Invalid uploads of one client affect only that client: the two others continue under the default limits, and the
// rounds average the two, which move by one per round. Record, report and log name the client and the reason.
func TestLies(t *testing.T) {
	shared := func(value float32) func(r *message.Reply) {
		return func(r *message.Reply) { r.Upload.Shared["ctx"].Data[0] = value }
	}
	for _, c := range []struct {
		say   string
		lie   func(r *message.Reply)
		flags []string
	}{
		{"NaN", shared(float32(math.NaN())), nil},
		{"joined with 10", func(r *message.Reply) { r.Upload.N = 11 }, nil},
		{"9223372036854775807 examples", func(r *message.Reply) { r.Upload.N = math.MaxInt }, nil},
		{"-1 examples", func(r *message.Reply) { r.Upload.N = -1 }, nil},
		{"ctx holds 1e+30", shared(1e30), nil},
		{"an update with a norm of 1e+05", shared(1e5), nil}, // honest ones have the length sqrt(4*512) = 45
		{"changed the parameters by the norm 1e+05", shared(1e5), []string{"--max-norm", "1000"}},
		{"loss 1e+300", func(r *message.Reply) { r.Stats.Loss = 1e300 }, nil},
		// 8 bytes, 4*512*4 of ctx, and {"shared/ctx":{"dtype":"F32","shape":[4,512],"data_offsets":[0,8192]}}, which is
		// padded to 72
		{"at most 8272 are accepted", func(r *message.Reply) { r.Upload.Shared["more"] = tensor.New(1 << 20) }, nil},
	} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, c.flags...)
			s.joins(1, 2)
			s.background(part{lie: c.lie})
			records := s.ends()
			counted(t, records, 1, 2)
			if log := s.log.String(); !strings.Contains(log, c.say) ||
				!strings.Contains(log, "client 0: 3 of its replies were refused") {
				t.Errorf("the server does not say %q, or its report has no word of it", c.say)
			}
			for _, r := range records {
				if len(r.Refused) != 1 || r.Refused[0].Client != 0 || len(r.Cut) > 0 {
					t.Errorf("the record of round %d has %+v", r.Round, r.LimitedClients)
				}
			}
			s.learned(3)
			s.noPieces()
		})
	}
}

// Two of three clients upload huge values from the first round on, before earlier rounds show what is usual: the round
// counts only the third.
func TestLiesOfTwo(t *testing.T) {
	t.Parallel()
	s := serve(t, 3, "--quorum", "0.3")
	s.joins(2)
	for client := range 2 {
		s.background(part{client: client, lie: func(r *message.Reply) { r.Upload.Shared["ctx"].Data[0] = 6e5 }})
	}
	records := s.ends()
	counted(t, records, 2)
	if log := s.log.String(); !strings.Contains(log, "50 times that of the parameters") {
		t.Error("the server does not say what was refused")
	}
	s.learned(3)
}

// A client sends invalid requests to join, also some in the name of another client. The server refuses them, and then
// accepts the valid request of the same client. The proof of a key in a request does not count: a client is the
// certificate of its connection.
func TestLyingJoinRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, 2)
	ctx := busytest.Context(t)
	a := s.attacker("client-0")
	ask := func(change func(j *wire.JoinCall, fields map[string]any)) error {
		t.Helper()
		x, err := a.open(ctx)
		goldentest.NoError(t, err)
		j, fields := s.joinRequest(x.run), map[string]any{}
		goldentest.NoError(t, json.Unmarshal(j.Request, &fields))
		change(j, fields)
		if j.Request, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		return x.ask(ctx, j)
	}
	set := func(name string, v any) func(*wire.JoinCall, map[string]any) {
		return func(_ *wire.JoinCall, fields map[string]any) { fields[name] = v }
	}
	strange := s.terms
	strange.Method = "fedpha"
	for say, change := range map[string]func(*wire.JoinCall, map[string]any){
		"the server started another run": func(j *wire.JoinCall, _ map[string]any) { j.Run = wire.NewID() },
		"is not an identity":             func(j *wire.JoinCall, _ map[string]any) { j.Instance = "../x" },
		"examples to train on":           set("examples", -5),
		"unmarshal JSON number":          set("examples", json.Number("9223372036854775808")),
		"unknown object member":          set("also", 1),
		"classes are too few":            set("terms", map[string]any{}),
		"impossible sizes": set("member", message.Participant{Task: method.ClientSpec{Backbone: "echo",
			Width: 1 << 30, Dim: 512}}),
		"or the domain": set("member", message.Participant{Domain: "a\nb", Task: method.ClientSpec{Backbone: "echo",
			Width: 512, Dim: 512}}),
		"method: the server has": set("terms", strange),
	} {
		code(t, say, ask(change), connect.CodePermissionDenied, say)
	}
	other, err := certs.FromTLS(s.tls(s.at("certs"), "client-1"))
	goldentest.NoError(t, err)
	proof, err := other.Proof()
	goldentest.NoError(t, err)
	if err := ask(set("proof", proof)); err != nil {
		t.Errorf("a valid request: %v", err)
	}
	s.says("msg=joined client=0")
	if strings.Contains(s.log.String(), "msg=joined client=1") {
		t.Error("client 0 joined as client 1")
	}
	s.joins(0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}

// The server does not believe a client that moves in the other direction and claims a thousand million examples. A
// client that claims more than any data set has cannot join. One with 15 times the examples of the others counts as
// twice the two together: the average moves by (10 + 10 - 40)/60 per round.
func TestClaims(t *testing.T) {
	back := func(r *message.Reply) {
		for _, t := range r.Upload.Shared {
			for i := range t.Data {
				t.Data[i] -= 2
			}
		}
	}
	for _, c := range []struct {
		claims int
		say    string
		move   float64
	}{{1e9, "half of all clients have 10 or fewer", 3}, {1<<53 + 1, "must be 1 to 9007199254740992", 3},
		{math.MaxInt, "must be 1 to 9007199254740992", 3}, {-1, "-1 examples to train on", 3},
		{150, "claimed=150 counted=40", -1}} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			var flags []string
			kept := !strings.Contains("must be 1 to 9007199254740992, -1 examples to train on", c.say)
			if !kept { // the run need not wait for it
				flags = []string{"--wait", "2"}
			}
			s := serve(t, 3, flags...)
			s.background(part{claims: c.claims, lie: back})
			if s.joins(1); !kept {
				s.says("refused to join")
			}
			s.joins(2)
			for _, r := range s.ends() {
				if want := c.claims == 150; (len(r.Cut) == 1) != want ||
					want && r.Cut[0] != (message.CappedUpload{Client: 0, Claimed: 150, Counted: 40}) {
					t.Errorf("the record of round %d has %+v", r.Round, r.LimitedClients)
				}
			}
			if !strings.Contains(s.log.String(), c.say) {
				t.Errorf("the server does not say %q", c.say)
			}
			s.learned(c.move)
		})
	}
}

// The status shows how many examples a client claims, how many count, and why its last reply was refused.
func TestStatusOfLiar(t *testing.T) {
	s := serve(t, 8)
	s.hold(7)
	s.joins(1, 2)
	s.background(part{claims: 150, lie: func(r *message.Reply) {
		if r.Upload.Shared["ctx"].Data[0] > 2 {
			r.Stats.Loss = 1e300
		}
	}})
	s.until("the limits of client 0 in the status", func() bool {
		status, err := s.status()
		goldentest.NoError(t, err)
		c := status.Clients[0]
		return c.Examples == 150 && c.Counted == 40 && strings.Contains(c.Reason, "the loss 1e+300")
	})
	s.hold(0)
	s.ends()
}
