package attack

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

var dpFlags = []string{"--set", "with=[dp]", "--set", "options={tokens: 4, dp: {noise: 1, clip: 1, delta: 0.01}}"}

// A client knows the seed of its run, as every client does, and subtracts the noise of that seed. The rest of the
// parameters must still be noise. With --insecure-dp on both sides the rest is the sum of the clipped updates, and no
// epsilon is recorded.
func TestNoiseIsSecret(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		flags := dpFlags
		if insecure {
			flags = append([]string{"--insecure-dp"}, flags...)
		}
		s := serve(t, 2, flags...)
		var mu sync.Mutex
		var seen []message.Instruction
		ctx := busytest.Context(t)
		done := make(chan error, 1)
		go func() {
			done <- s.join(ctx, part{sees: func(o message.Instruction) {
				mu.Lock()
				defer mu.Unlock()
				if o.Kind == message.Train {
					seen = append(seen, o)
				}
			}})
		}()
		s.joins(1, 2)
		records := s.ends()
		goldentest.NoError(t, <-done)
		before, after := seen[0].Shared["ctx"].Data, seen[1].Shared["ctx"].Data
		r := method.Rand(s.terms.Seed, "dp", "0")
		sum := 0.0
		for i := range before {
			// three clients moved every number by one, which is clipped to 1/√n
			left := 3*float64(after[i]-before[i]) - r.NormFloat64() - 3/math.Sqrt(float64(len(before)))
			sum += left * left
		}
		left := math.Sqrt(sum / float64(len(before)))
		_, recorded := records[1].Notes["epsilon"]
		// two independent normal draws differ by √2
		if insecure && !(left < 1e-5) || !insecure && math.Abs(left-math.Sqrt2) > 0.2 || recorded == insecure {
			t.Errorf("with --insecure-dp %v the deviation %v is left; notes %v", insecure, left, records[1].Notes)
		}
	}
}

// Under dp an upload that is two thousand times as long as others counts like the others: its length is clipped, and
// whether it counts does not depend on other uploads (without dp the server refuses it, TestLies). No record contains a
// length, and the folder of the server does not contain the numbers of examples of clients.
func TestLongUploadCountsUnderDP(t *testing.T) {
	t.Parallel()
	s := serve(t, 3, dpFlags...)
	s.joins(1, 2)
	s.background(part{lie: func(r *message.Reply) { r.Upload.Shared["ctx"].Data[0] = 1e5 }})
	records := s.ends()
	counted(t, records, 0, 1, 2)
	for _, r := range records {
		if len(r.Refused)+len(r.Cut) > 0 {
			t.Errorf("the record of round %d has %+v", r.Round, r.LimitedClients)
		}
	}
	members, err := filepath.Glob(s.at("out", "hub", "members", "client-*.json"))
	if err != nil || len(members) != 3 {
		t.Fatalf("%v, %v", members, err)
	}
	for _, path := range members {
		if b, err := os.ReadFile(path); err != nil || strings.Contains(string(b), `"examples"`) {
			t.Errorf("%s: %v, %s", path, err, b)
		}
	}
}

// A client that configures only its images accepts the decisions of the server; with --require it accepts only what the
// flag allows. It computes epsilon itself, and until then tells the server only its number.
func TestRequire(t *testing.T) {
	s := serve(t, 1, dpFlags...)
	for require, say := range map[string]string{
		"secure_aggregation":            "has secure_aggregation: off",
		"method=fedpha":                 "has method: promptfl",
		"dp,dp.epsilon<=6":              "has dp.epsilon: 6.925",
		"dp.epsilon_server<=100":        "has dp.epsilon_server: infinite",
		"dp.secret,tls,dp.where=client": "has dp.where: server",
	} {
		out, err := exec.CommandContext(busytest.Context(t), programs.Promptfed, "join", s.url(), "--client", "0",
			"--tls", s.at("certs"), "--set", "data.set=synthetic", "--state", s.at("state"), "--require",
			require).CombinedOutput()
		if err == nil || !strings.Contains(string(out), say) || strings.Contains(string(out), "\ngoroutine") {
			t.Errorf("%s: %v, %s", require, err, out)
		}
	}
	if strings.Contains(s.log.String(), "joined") {
		t.Error("a client joined")
	}
	s.joins(0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}
