package chaos

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/busytest"
)

// network connects clients with the server.
type network interface {
	address() string                   // address for clients
	inside(command ...string) []string // a command as it is started on the side of the clients
	cut(share float64)
	stall(share float64, d time.Duration)
	part(d time.Duration) // nobody reaches the server
	slow(share float64, d time.Duration)
}

// newNetwork returns a proxy, or a network namespace if PROMPTFED_TEST_CHAOS_NETNS is set, and the address for the
// server.
func newNetwork(t *testing.T, s *site, seed uint64) (network, string) {
	if os.Getenv("PROMPTFED_TEST_CHAOS_NETNS") != "" {
		return newNamespace(t)
	}
	to := busytest.Address(t, "127.0.0.1")
	p := newProxy(t, to, seed)
	p.damage, p.heard = s.damage, s.rogue.hear
	p.delay.Store(int64(s.delay))
	t.Cleanup(func() { t.Log("damaged pieces:", p.did) })
	return p, to
}

func (p *proxy) inside(command ...string) []string { return command }

// namespace is a network namespace with all clients, and one link out of it.
type namespace struct {
	t    *testing.T
	to   string
	lost bool // the kernel has netem
}

const (
	space, outer, inner  = "promptfed-chaos", "pfchaos0", "pfchaos1"
	outerHost, innerHost = "10.231.17.1", "10.231.17.2"
	usual                = "delay 10ms 5ms loss 1% duplicate 1% reorder 5%"
	late                 = "delay 300ms 100ms loss 5% duplicate 2% reorder 25%"
)

func newNamespace(t *testing.T) (network, string) {
	t.Helper()
	n := &namespace{t: t}
	n.try("netns", "del", space) // of a test that was killed
	for _, args := range []string{"netns add " + space, "link add " + outer + " type veth peer name " + inner,
		"link set " + inner + " netns " + space,
		"addr add " + outerHost + "/30 dev " + outer, "link set " + outer + " up", "-n " + space + " addr add " +
			innerHost + "/30 dev " + inner,
		"-n " + space + " link set " + inner + " up", "-n " + space + " link set lo up"} {
		if err := n.try(strings.Fields(args)...); err != nil {
			t.Skipf("no network namespaces here: ip %s: %v", args, err)
		}
	}
	t.Cleanup(func() { n.try("netns", "del", space) })
	n.lost = n.netem(usual)
	t.Log("netem:", n.lost)
	n.to = busytest.Address(t, outerHost)
	return n, n.to
}

func (n *namespace) try(args ...string) error { return exec.Command("ip", args...).Run() }

func (n *namespace) netem(what string) bool {
	args := append([]string{"qdisc", "replace", "dev", outer, "root", "netem"}, strings.Fields(what)...)
	there := exec.Command("tc", args...).Run() == nil
	args[3] = inner
	back := exec.Command("ip", append([]string{"netns", "exec", space, "tc"}, args...)...).Run() == nil
	return there && back
}

func (n *namespace) address() string { return n.to }

func (n *namespace) inside(command ...string) []string {
	return append([]string{"ip", "netns", "exec", space}, command...)
}

// cut takes the link down for a moment: packets in transit are lost, and connections do not notice.
func (n *namespace) cut(float64) { n.stall(1, time.Second) }

func (n *namespace) stall(_ float64, d time.Duration) {
	n.try("link", "set", outer, "down")
	go func() {
		busytest.Delay(d)
		n.try("link", "set", outer, "up")
	}()
}

func (n *namespace) part(d time.Duration) { n.stall(1, d) }

func (n *namespace) slow(_ float64, d time.Duration) {
	if n.lost {
		n.netem(late)
		go func() {
			busytest.Delay(d)
			n.netem(usual)
		}()
	}
}
