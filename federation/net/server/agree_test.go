package server

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
)

// newElection returns a server of five clients, none of which has joined.
func newElection(t testing.TB) *Server {
	t.Helper()
	return newElectionOf(t, newLimited(t, nil).set)
}

func newElectionOf(t testing.TB, set Settings) *Server {
	t.Helper()
	if set.Dir == "" {
		set.Dir = t.TempDir()
	}
	for _, d := range []string{membersDir, piecesDir} {
		goldentest.NoError(t, os.MkdirAll(filepath.Join(set.Dir, d), 0o700))
	}
	return newServer(set)
}

// proof returns the proof of a key that is made once.
var proof = sync.OnceValue(func() certs.Proof {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	p, err := certs.Identity{Key: key}.Proof()
	if err != nil {
		panic(err)
	}
	return p
})

// request returns an honest client's request to join, with changes.
func request(change ...func(c *wire.JoinRequest)) wire.JoinRequest {
	c := wire.JoinRequest{Backbone: "b", Tokens: "t", Examples: 10}
	c.Proof = proof()
	c.RunSpec.Classes, c.RunSpec.Template = []string{"cat", "dog"}, "a {}."
	c.Participant.Task = method.ClientSpec{Backbone: "toy", Width: 4, Dim: 3}
	for _, f := range change {
		f(&c)
	}
	return c
}

func otherClasses(c *wire.JoinRequest) { c.RunSpec.Classes = []string{"dog", "cat"} }

// enters lets a client's process request to join.
func (h *Server) enters(client int, c wire.JoinRequest) (*session, error) {
	return h.admit(client, certs.Peer{Name: certs.UserOf(client), Proof: c.Proof}, "i", c)
}

// says lets a client request to join. The server must admit it ("in"), ask it to wait ("wait") or refuse it
// ("refused").
func (h *Server) says(t *testing.T, client int, c wire.JoinRequest, want string) {
	t.Helper()
	got := "in"
	_, err := h.enters(client, c)
	if errors.As(err, new(laterError)) {
		got = "wait"
	} else if err != nil {
		got = "refused"
	}
	if got != want {
		t.Errorf("client %d: %s, want %s: %v", client, got, want, err)
	}
}

// begins checks whether the run starts with so many clients, and which clients take part.
func (h *Server) begins(t *testing.T, clients int, want bool, members ...int) {
	t.Helper()
	got, err := h.begin(clients)
	if got != want || err != nil {
		t.Fatalf("it starts: %v, %v", got, err)
	}
	var in []int
	for k, m := range h.members.roster().clients {
		if m.joined {
			in = append(in, k)
		}
	}
	if !slices.Equal(in, members) {
		t.Errorf("clients %v, want %v", in, members)
	}
}

// restarted returns a new server that continues from the folder.
func (h *Server) restarted(t *testing.T) *Server {
	t.Helper()
	n := newElectionOf(t, h.set)
	goldentest.NoError(t, n.readMembers())
	return n
}

// Two clients that agree start the run against the first client, whose request then binds nobody. A server that was
// killed before or after the start decides the same. The first client is admitted once it agrees with the others.
func TestMajorityDecides(t *testing.T) {
	for name, lie := range map[string]func(c *wire.JoinRequest){
		"classes":         otherClasses,
		"more classes":    func(c *wire.JoinRequest) { c.RunSpec.Classes = []string{"cat", "dog", "owl"} },
		"template":        func(c *wire.JoinRequest) { c.RunSpec.Template = "{}" },
		"evaluation sets": func(c *wire.JoinRequest) { c.RunSpec.EvaluationSets = []string{"x"} },
		"files":           func(c *wire.JoinRequest) { c.Backbone = "other" },
		"tokens":          func(c *wire.JoinRequest) { c.Tokens = "other" },
		"patches":         func(c *wire.JoinRequest) { c.Participant.Task.Patches = 7 },
		"width":           func(c *wire.JoinRequest) { c.Participant.Task.Width = 5 },
		"width of another backbone": func(c *wire.JoinRequest) {
			c.Participant.Task.Width, c.Participant.Task.Backbone = 5, "wide"
		},
	} {
		for _, kill := range []string{"never", "before", "after"} {
			t.Run(fmt.Sprint(name, ", killed ", kill, " the start"), func(t *testing.T) {
				h := newElection(t)
				h.says(t, 3, request(lie), "in")
				h.begins(t, 3, false, 3)
				h.says(t, 1, request(), "wait")
				if kill == "before" {
					h = h.restarted(t)
				}
				h.says(t, 2, request(), "wait")
				h.begins(t, 3, true, 1, 2)
				if kill == "after" {
					h = h.restarted(t)
				}
				h.begins(t, 3, true, 1, 2)
				if m := h.members.roster().clients[3]; m.hasRequest() || m.connected ||
					h.members.roster().terms.String() != request().RunSpec.String() {
					t.Errorf("%+v, %+v", m, h.members.roster().terms)
				}
				h.says(t, 1, request(), "in")
				h.says(t, 3, request(lie), "refused")
				h.says(t, 4, request(lie), "refused")
				h.says(t, 4, request(), "in")
				h.says(t, 3, request(), "in")
			})
		}
	}
}

// No client waits if all agree. What is the same for all clients is computed once, not for each of 1,000. A client that
// leaves does not change what others are judged by.
func TestAllAgree(t *testing.T) {
	h := newElection(t)
	for k := range 5 {
		h.says(t, k, request(), "in")
	}
	h.begins(t, 5, true, 0, 1, 2, 3, 4)

	roster := h.members.roster()
	h.members.change(0, func(m *member) { m.session, m.left = nil, true })
	if now := h.members.roster().version; now != roster.version {
		t.Errorf("version %d, want %d", now, roster.version)
	}
	roster.clients = slices.Repeat(roster.clients, 200)
	if got := testing.AllocsPerRun(1, func() { roster.decide(h.set) }); got > 1000 {
		t.Errorf("a decision of 1,000 clients makes %v allocations", got)
	}
}

// Without a majority the run waits and logs that once. It starts when another client agrees with one of two, when one
// of two changes its request, or when one is revoked.
func TestTies(t *testing.T) {
	for name, end := range map[string]func(h *Server) (members []int){
		"one more": func(h *Server) []int { h.says(t, 4, request(), "wait"); return []int{1, 4} },
		"one agrees": func(h *Server) []int {
			h.says(t, 0, request(), "in")
			return []int{0, 1}
		},
		"one is revoked": func(h *Server) []int {
			h.change(0, func(m *member) { m.lapsed = "revoked" })
			h.members.change(0, (*member).forget)
			return []int{1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newElection(t)
			h.says(t, 0, request(otherClasses), "in")
			h.says(t, 1, request(), "wait")
			h.begins(t, 2, false, 0, 1)
			if !strings.Contains(h.disagreement, `classes: client 0 has ["dog" "cat"] from number 1 on, client 1 [`) {
				t.Errorf("it says %q", h.disagreement)
			}
			h.begins(t, 2, true, end(h)...)
		})
	}
}

// The configuration decides at once, also about a request that is older than the configuration.
func TestConfigurationDecides(t *testing.T) {
	h := newElection(t)
	h.says(t, 0, request(otherClasses), "in")
	h.set.RunSpec.Classes = []string{"cat", "dog"}
	h = h.restarted(t)
	h.says(t, 0, request(otherClasses), "refused")
	h.set.Backbones = map[string]spec.OwnBackbone{"toy": {Digest: "b", Task: request().Participant.Task,
		Tokens: func(classes []string, template string) (string, error) {
			return map[string]string{"cat,dog a {}.": "t"}[strings.Join(classes, ",")+" "+template], nil
		}}}
	for _, lie := range []func(c *wire.JoinRequest){func(c *wire.JoinRequest) { c.Backbone = "other" },
		func(c *wire.JoinRequest) { c.Tokens = "other" },
		func(c *wire.JoinRequest) { c.Participant.Task.Patches = 7 }} {
		h.says(t, 0, request(lie), "refused")
	}
	h.says(t, 0, request(), "in")
	h.begins(t, 1, true, 0)
}

// Two clients that name the same backbone and have different files do not take part; the other clients do. One of the
// two takes part once the other is revoked, or has the same files, or a third client has, also if that is revoked then.
func TestBackbonesWithoutMajority(t *testing.T) {
	second := func(c *wire.JoinRequest) { c.Participant.Task.Backbone = "second" }
	for name, end := range map[string]func(h *Server){
		"revoked": func(h *Server) { h.change(4, func(m *member) { m.lapsed = "revoked" }) },
		"agrees": func(h *Server) {
			h.change(4, func(m *member) {
				m.Backbone = "b"
				m.files = filesOf(m.JoinRequest)
			})
		},
		"a third": func(h *Server) {
			h.says(t, 5, request(second), "in")
			h.says(t, 3, request(second), "in")
			h.change(5, func(m *member) { m.lapsed = "revoked" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := newLimited(t, nil).set
			set.Clients = 6
			h := newElectionOf(t, set)
			lie := func(c *wire.JoinRequest) { c.Backbone = "other" }
			for k := range 3 {
				h.says(t, k, request(), "in")
			}
			h.says(t, 4, request(second, lie), "in")
			h.says(t, 3, request(second), "wait")
			h.begins(t, 5, true, 0, 1, 2)
			h = h.restarted(t)
			h.says(t, 3, request(second), "wait")
			h.says(t, 4, request(second, lie), "wait")
			end(h)
			h.says(t, 3, request(second), "in")
			h.says(t, 2, request(second, lie), "refused")
		})
	}
}

// A file of another version is refused with the next step.
func TestAgreementVersion(t *testing.T) {
	h := newElection(t)
	goldentest.NoError(t, h.write(agreementFile, agreement{Version: 3}))
	goldentest.WantError(t, h.readMembers(), "agreed.json has version 3")
}
