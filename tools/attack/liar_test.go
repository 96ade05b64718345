package attack

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%s: %v, %v", dir, list, err)
	}
}

// learned fails unless every shared parameter moved by so much from where it began, which is near 0.
func (s *server) learned(move float64) {
	s.t.Helper()
	m, _, err := safetensors.ReadFile(s.at("out", engine.PromptsFile))
	if err != nil {
		s.t.Fatal(err)
	}
	shared := m.Under("shared")
	for _, name := range shared.Names() {
		for i, v := range shared[name].Data {
			if !(math.Abs(float64(v)-move) < 0.2) { // first values have a standard deviation of 0.02
				s.t.Fatalf("%s: element %d is %v, not about %v", name, i, v, move)
			}
		}
	}
}

// A client that uploads what none should fails alone: of three clients the two others go on, with the limits that there
// are by default, and their rounds have the average of two, which moves by one a round. Record, report and log say
// whose upload was refused and why.
func TestLies(t *testing.T) {
	shared := func(value float32) func(r *engine.Reply) {
		return func(r *engine.Reply) { r.Upload.Shared["ctx"].Data[0] = value }
	}
	more := func(r *engine.Reply) { r.Upload.Shared["more"] = tensor.New(1 << 20) }
	for _, c := range []struct {
		say   string
		lie   func(r *engine.Reply)
		flags []string
	}{
		{"NaN", shared(float32(math.NaN())), nil},
		{"joined with 10", func(r *engine.Reply) { r.Upload.N = 11 }, nil},
		{"9223372036854775807 examples", func(r *engine.Reply) { r.Upload.N = math.MaxInt }, nil},
		{"-1 examples", func(r *engine.Reply) { r.Upload.N = -1 }, nil},
		{"ctx holds 1e+30", shared(1e30), nil},
		{"a move of the parameters of 1e+05", shared(1e5), nil}, // honest ones have the length sqrt(4*512) = 45
		{"moved the parameters by 1e+05", shared(1e5), []string{"--max-norm", "1000"}},
		{"loss 1e+300", func(r *engine.Reply) { r.Stats.Loss = 1e300 }, nil},
		{"the extra \\\"more\\\"", func(r *engine.Reply) { r.Upload.Extra = tensor.Map{"more": tensor.Scalar(1)} }, nil},
		{"another experiment", func(r *engine.Reply) { r.Upload.Shared["more"] = tensor.Scalar(1) }, nil},
		{"at most 1000000 are taken", more, []string{"--largest", "1000000"}},
	} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, c.flags...)
			s.joins(0, 1, 2)
			s.liar(part{lie: c.lie})
			records := s.ends()
			counted(t, records, 1, 2)
			if log := s.log.String(); !strings.Contains(log, c.say) ||
				!strings.Contains(log, "client 0: 3 of its replies refused") {
				t.Errorf("the server does not say %q, or its report has no word of it", c.say)
			}
			for _, r := range records {
				if len(r.Refused) != 1 || r.Refused[0].Client != 0 || len(r.Cut) > 0 {
					t.Errorf("the record of round %d has %+v", r.Round, r.Limited)
				}
			}
			s.learned(3)
			empty(t, s.at("out", "hub", "pieces"))
		})
	}
}

// A client that moves the other way and says to have a thousand million examples is not believed, one with more than
// any data set does not join, and one with 15 times as many as the others weighs as much as twice the two together: the
// average moves by (10 + 10 - 40)/60 a round.
func TestClaims(t *testing.T) {
	back := func(r *engine.Reply) {
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
	}{{1e9, "half of all clients have 10 or fewer", 3}, {1<<53 + 1, "at most 9007199254740992", 3},
		{math.MaxInt, "at most 9007199254740992", 3}, {-1, "-1 examples to train on", 3},
		{150, "claimed=150 counted=40", -1}} {
		t.Run(c.say, func(t *testing.T) {
			t.Parallel()
			var flags []string
			kept := !strings.Contains("at most 9007199254740992, -1 examples to train on", c.say)
			if !kept { // the run need not wait for it
				flags = []string{"--wait", "2"}
			}
			s := serve(t, 3, flags...)
			s.liar(part{claims: c.claims, lie: back})
			if s.joins(0, 1); !kept {
				s.says("refused to join")
			}
			s.joins(0, 2)
			for _, r := range s.ends() {
				if want := c.claims == 150; (len(r.Cut) == 1) != want ||
					want && r.Cut[0] != (engine.Cut{Client: 0, Claimed: 150, Counted: 40}) {
					t.Errorf("the record of round %d has %+v", r.Round, r.Limited)
				}
			}
			if !strings.Contains(s.log.String(), c.say) {
				t.Errorf("the server does not say %q", c.say)
			}
			s.learned(c.move)
		})
	}
}

// The status tells what a client says to have, what that counts as, and why its reply was refused last.
func TestStatusOfLiar(t *testing.T) {
	s := serve(t, 40)
	s.joins(100*time.Millisecond, 1, 2)
	s.liar(part{claims: 150, pause: 100 * time.Millisecond, lie: func(r *engine.Reply) {
		if r.Upload.Shared["ctx"].Data[0] > 2 {
			r.Stats.Loss = 1e300
		}
	}})
	nc, _ := s.intruder("status", nats.CustomInboxPrefix(transport.StatusInbox("default")))
	ctx, cancel := contextFor(20 * time.Second)
	defer cancel()
	for ; ; time.Sleep(50 * time.Millisecond) {
		status, err := transport.AskStatus(ctx, nc, "default")
		if err != nil {
			t.Fatal(err)
		}
		c := status.Clients[0]
		if c.Examples == 150 && c.Counted == 40 && strings.Contains(c.Reason, "the loss 1e+300") {
			break
		}
	}
}
