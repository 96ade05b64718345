package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/busytest"
)

// survive runs the trial with the faults of a schedule, until the schedule or the run ends.
func (s *site) survive(schedule []step) {
	began := time.Now()
	s.startServer()
	for k := range s.joins {
		s.startJoin(k)
	}
	for _, p := range schedule {
		busytest.Until(s.t, fmt.Sprintf("%d rounds", p.rounds), func() bool {
			return s.rounds() >= p.rounds || s.failed()
		})
		busytest.Delay(p.after)
		if s.rounds() == s.trial.rounds || s.failed() {
			break
		}
		s.t.Logf("%6.1f s, %2d rounds: %v", time.Since(began).Seconds(), s.rounds(), p)
		faults[p.fault](s, p)
	}
	busytest.Until(s.t, "the end of the run", s.over)
	s.end()
	s.t.Logf("%s, %d members, %d rounds, certificates %v: %.1f s", s.method, len(s.joins), s.trial.rounds,
		s.certificates, time.Since(began).Seconds())
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
	missing := 0
	for i := range got {
		counted, asked := slices.Sorted(slices.Values(got[i].Clients)), want[i].Clients
		if len(slices.Compact(counted)) != len(got[i].Clients) {
			s.t.Errorf("round %d: an upload counts twice: %v", i, got[i].Clients)
		}
		if float64(len(counted)) < s.quorum*float64(len(asked)) {
			s.t.Errorf("round %d: %d of %d clients, quorum %v", i, len(counted), len(asked), s.quorum)
		}
		missing += len(asked) - len(counted)
	}
	if s.quorum < 1 {
		s.t.Log("uploads that did not count:", missing)
		expected = s.expected(got)
	}
	if s.workers == 0 {
		s.keepsNothingPrivate()
	}
	if s.bytes(s.learned()) != s.bytes(expected) {
		s.t.Error("other bytes than without faults")
	}
}

// keepsNothingPrivate fails if a file of the server holds the beginning of a private parameter of a client.
func (s *site) keepsNothingPrivate() {
	s.t.Helper()
	private := map[string][]byte{}
	for k := range s.clients {
		for name, v := range s.prompts(s.client(k)) {
			const enough = 8 // numbers, which nothing else has
			if !strings.Contains(name, "/private/") || len(v.Data) < enough {
				continue // its own shared parameters are what it uploaded
			}
			begins, err := binary.Append(nil, binary.LittleEndian, v.Data[:enough])
			if err != nil {
				s.t.Fatal(err)
			}
			private[fmt.Sprintf("%s of client %d", name, k)] = begins
		}
	}
	if len(private) == 0 && s.method == "fedpha" {
		s.t.Error("fedpha has no private parameters")
	}
	err := filepath.WalkDir(s.at("serve"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for what, begins := range private {
			if bytes.Contains(b, begins) {
				s.t.Errorf("%s holds %s", path, what)
			}
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
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
	first, all := seed(t), slices.Sorted(maps.Keys(faults))
	runs, long := os.LookupEnv("PROMPTFED_TEST_CHAOS_RUNS")
	if !long {
		for i, name := range []string{"clients", "clients with certificates", "workers"} {
			t.Run(name, func(t *testing.T) {
				parallel(t)
				tr := trial{method: []string{"fedpha", "promptfl"}[i%2], clients: 6, rounds: 12, certificates: i > 0,
					workers: i / 2 * 2, quorum: 1, deadline: time.Hour, share: 0.5, delay: 60 * time.Millisecond,
					damage: 0.05, repeat: 0.2}
				s := open(t, tr, first)
				s.survive(schedule(tr, first+uint64(i), all, 1))
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
			quorum: 1, deadline: time.Hour, share: 0.3, delay: 20 * time.Millisecond, damage: 0.02, repeat: 0.1}
		switch i % 5 {
		case 3:
			tr.workers, tr.certificates = 3, true
		case 4:
			tr.quorum, tr.deadline = 0.6, 3*time.Second
		}
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := open(t, tr, seed)
			s.survive(schedule(tr, seed, all, 4))
			s.check()
		})
	}
}
