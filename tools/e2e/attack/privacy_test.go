package attack

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
)

var dpFlags = []string{"--set", "with=[dp]", "--set", "options={tokens: 4, dp: {noise: 1, clip: 1, delta: 0.01}}"}

// A client knows the seed of its run, as every client does, and takes off the noise that the seed gives: what is left
// of the parameters that it is sent must be noise all the same. With --insecure-dp on both sides nothing is left but
// the sum of the clipped updates, and no epsilon is recorded.
func TestNoiseIsSecret(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		flags := dpFlags
		if insecure {
			flags = append([]string{"--insecure-dp"}, flags...)
		}
		s := serve(t, 2, flags...)
		var mu sync.Mutex
		var seen []message.Instruction
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
		s.joins(0, 1, 2)
		records := s.ends()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		cancel()
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

// Under dp an upload that is two thousand times as long as those of others counts as theirs do: its length is clipped,
// and whether it counts is no matter of what others upload (without dp it is refused, TestLies). No record tells a
// length, and the server's folder does not hold how many examples clients have.
func TestLongUploadCountsUnderDP(t *testing.T) {
	t.Parallel()
	s := serve(t, 3, dpFlags...)
	s.joins(0, 1, 2)
	s.background(part{lie: func(r *message.Reply) { r.Upload.Shared["ctx"].Data[0] = 1e5 }})
	records := s.ends()
	counted(t, records, 0, 1, 2)
	for _, r := range records {
		if len(r.Refused)+len(r.Cut) > 0 {
			t.Errorf("the record of round %d has %+v", r.Round, r.Limited)
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

// A client that brings nothing but its images takes what the server decides: with --require not without what it asks
// for. It computes epsilon itself, and tells the server nothing but its number before.
func TestRequire(t *testing.T) {
	s := serve(t, 1, dpFlags...)
	for require, say := range map[string]string{
		"secure_aggregation":            "has secure_aggregation: off",
		"method=fedpha":                 "has method: promptfl",
		"dp,dp.epsilon<=6":              "has dp.epsilon: 6.925",
		"dp.epsilon_server<=100":        "has dp.epsilon_server: infinite",
		"dp.secret,tls,dp.where=client": "has dp.where: server",
	} {
		ctx, cancel := contextFor(30 * time.Second)
		out, err := exec.CommandContext(ctx, programs.Promptfed, "join", "tls://"+s.address, "--client", "0", "--tls",
			s.at("certs"), "--set", "data.set=synthetic", "--state", s.at("state"), "--require",
			require).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), say) || strings.Contains(string(out), "\ngoroutine") {
			t.Errorf("%s: %v, %s", require, err, out)
		}
	}
	if strings.Contains(s.log.String(), "joined") {
		t.Error("a client joined")
	}
	s.joins(0, 0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
}
