package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"promptfed/runtime/busytest"
)

// step is one fault of a schedule.
type step struct {
	rounds int           // that the run has finished, at least
	after  time.Duration // since the step before
	fault  string
	target int           // a client or a worker
	lasts  time.Duration // of the fault, or of the absence of a process
}

func (p step) String() string {
	return fmt.Sprintf("%s, target %d, %v", p.fault, p.target, p.lasts.Round(time.Millisecond))
}

// faults are what steps do to a site.
var faults = map[string]func(*site, step){
	"kill a member": func(s *site, p step) {
		s.joins[p.target].Kill()
		s.comeBack(p)
	},
	"kill the server": func(s *site, p step) {
		s.server.Kill()
		s.serverComesBack(p)
	},
	"pause a member":   func(s *site, p step) { s.joins[p.target].pause(p.lasts) },
	"pause the server": func(s *site, p step) { s.server.pause(p.lasts) },
	"fill a member's disk": func(s *site, p step) {
		if s.quorum == 1 && s.workers == 0 {
			s.excused++
		}
		s.joins[p.target].full(s.t, p.lasts)
		s.comeBack(p)
	},
	"fill the server's disk": func(s *site, p step) {
		s.server.full(s.t, p.lasts)
		s.serverComesBack(p)
	},
	"cut":       func(s *site, _ step) { s.link.cut(0.5) },
	"stall":     func(s *site, p step) { s.link.stall(0.5, p.lasts) },
	"slow":      func(s *site, p step) { s.link.slow(0.5, p.lasts) },
	"partition": func(s *site, p step) { s.link.part(p.lasts) },
	"replay":    func(s *site, _ step) { s.rogue.strike(s) },
}

// schedule draws each fault several times, in any order, over all rounds of a trial.
func schedule(tr trial, seed uint64, faults []string, times int) []step {
	r := rand.New(rand.NewPCG(seed, 3))
	list := slices.Repeat(faults, times)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	var out []step
	for i, f := range list {
		out = append(out, step{rounds: i * tr.rounds / len(list), after: drawn(r, 0, 800*time.Millisecond), fault: f,
			target: r.IntN(tr.members()), lasts: drawn(r, 0, 3*time.Second)})
	}
	return out
}

// drawn returns a duration from least up to most.
func drawn(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// comeBack starts a member again soon.
func (s *site) comeBack(p step) {
	busytest.Delay(p.lasts / 6)
	s.startJoin(p.target)
}

// serverComesBack starts the server again soon.
func (s *site) serverComesBack(p step) {
	busytest.Delay(p.lasts / 6)
	s.startServer("--resume")
}

// pause stops a process for some time. When it goes on, its clocks have jumped.
func (p *process) pause(d time.Duration) {
	p.Process.Signal(syscall.SIGSTOP)
	busytest.Delay(d)
	p.Process.Signal(syscall.SIGCONT)
}

// full lets a process write nothing to any file for some time, as on a full disk, and kills it: it may have ended by
// itself.
func (p *process) full(t *testing.T, d time.Duration) {
	t.Helper()
	err := unix.Prlimit(p.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Max: unix.RLIM_INFINITY}, nil)
	if err != nil && !p.Ended() {
		t.Error(err)
	}
	busytest.Delay(d)
	p.Kill()
}
