package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/busytest"
)

// fault is one thing that goes wrong.
type fault struct {
	name string
	do   func(s *site) string // describes its target
}

var faults = []fault{
	{"kill a client", func(s *site) string {
		k := s.rand.IntN(len(s.joins))
		s.joins[k].kill()
		s.soon()
		s.startJoin(k)
		return fmt.Sprint(k)
	}},
	{"kill the server", func(s *site) string {
		s.server.kill()
		s.soon()
		s.startServer("--resume")
		return ""
	}},
	{"cut", func(s *site) string { s.link.cut(0.5); return "" }},
	{"stall", func(s *site) string { d := s.upTo(3 * time.Second); s.link.stall(0.5, d); return d.String() }},
	{"slow", func(s *site) string { d := s.upTo(4 * time.Second); s.link.slow(0.5, d); return d.String() }},
	{"replay", func(s *site) string { return fmt.Sprint(s.rogue.strike(s), " connections") }},
}

func (s *site) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d))) }

func (s *site) soon() { busytest.Delay(s.upTo(500 * time.Millisecond)) }

// survive runs the trial. plan returns the next fault and its time, until plan or the run ends.
func (s *site) survive(plan func(n int) (time.Duration, *fault)) {
	began := time.Now()
	s.startServer()
	for k := range s.joins {
		s.startJoin(k)
	}
	for n := 0; s.rounds() < s.trial.rounds; n++ {
		pause, f := plan(n)
		if f == nil {
			break
		}
		busytest.Delay(pause)
		if s.failed() {
			break
		}
		at, round := time.Since(began), s.rounds()
		s.t.Logf("%6.1f s, %2d rounds: %s %s", at.Seconds(), round, f.name, f.do(s))
	}
	busytest.Until(s.t, "the end of the run", s.over)
	s.end()
	s.t.Logf("%s, %d clients, %d rounds, certificates %v: %.1f s", s.method, s.clients, s.trial.rounds, s.certificates,
		time.Since(began).Seconds())
}

// check compares the result with that of an undisturbed run.
func (s *site) check() {
	s.t.Helper()
	if s.t.Failed() {
		s.t.Log(s.server.tail())
		return
	}
	got, want := s.records("serve"), s.records("run")
	if strings.Contains(s.trial.config, "secure_aggregation") { // other keys, and steps that are not repeated
		for i := range got {
			got[i].BytesUp, got[i].BytesDown = want[i].BytesUp, want[i].BytesDown
		}
	}
	if s.quorum == 1 && !reflect.DeepEqual(got, want) {
		s.t.Errorf("other records than in one process:\n%+v\n%+v", got, want)
	}
	expected := s.prompts(s.at("run"))
	if s.quorum < 1 {
		missing := 0
		for i := range got {
			slices.Sort(got[i].Clients)
			if !slices.IsSorted(got[i].Clients) ||
				len(slices.Compact(slices.Clone(got[i].Clients))) != len(got[i].Clients) {
				s.t.Errorf("round %d: clients %v", i, got[i].Clients)
			}
			missing += len(want[i].Clients) - len(got[i].Clients)
		}
		s.t.Log("uploads that did not count:", missing)
		expected = s.expected(got)
	}
	if s.bytes(s.learned()) != s.bytes(expected) {
		s.t.Error("other bytes than without faults")
	}
}

func seed(t *testing.T) uint64 {
	n, err := strconv.ParseUint(os.Getenv("PROMPTFED_TEST_CHAOS_SEED"), 10, 64)
	if err != nil {
		n = uint64(time.Now().UnixNano() % 1e6)
	}
	t.Log("PROMPTFED_TEST_CHAOS_SEED =", n)
	return n
}

// parallel lets a test run beside others, unless they share the network namespace.
func parallel(t *testing.T) {
	if os.Getenv("PROMPTFED_TEST_CHAOS_NETNS") == "" {
		t.Parallel()
	}
}

// A run survives all faults of its processes and of the network, and learns what it would have learned without them.
func TestChaos(t *testing.T) {
	first := seed(t)
	runs, long := os.LookupEnv("PROMPTFED_TEST_CHAOS_RUNS")
	if !long {
		for i, certificates := range []bool{false, true} {
			t.Run(fmt.Sprint("certificates=", certificates), func(t *testing.T) {
				parallel(t)
				s := open(t, trial{method: []string{"fedpha", "promptfl"}[i], clients: 6, rounds: 12,
					certificates: certificates, quorum: 1, deadline: time.Hour, share: 0.5,
					delay: 60 * time.Millisecond, damage: 0.05}, first)
				list := slices.Concat(faults, faults)
				r := rand.New(rand.NewPCG(first, 3))
				r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				s.survive(func(n int) (time.Duration, *fault) {
					if n == len(list) {
						return 0, nil
					}
					return time.Duration(300+r.IntN(500)) * time.Millisecond, &list[n]
				})
				s.check()
			})
		}
		return
	}
	n, err := strconv.Atoi(runs)
	if err != nil {
		t.Fatalf("PROMPTFED_TEST_CHAOS_RUNS=%q: give a number of runs", runs)
	}
	for i := range n {
		seed := first + uint64(i)
		tr := trial{method: []string{"promptfl", "fedpha"}[i%2], clients: 20, rounds: 30, certificates: i/2%2 == 1,
			quorum: 1, deadline: time.Hour, share: 0.3,
			delay: 20 * time.Millisecond, damage: 0.02}
		if i%5 == 4 {
			tr.quorum, tr.deadline = 0.6, 3*time.Second
		}
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := open(t, tr, seed)
			s.survive(func(int) (time.Duration, *fault) {
				return time.Duration(1000+s.rand.IntN(2000)) * time.Millisecond, &faults[s.rand.IntN(len(faults))]
			})
			s.check()
		})
	}
}
