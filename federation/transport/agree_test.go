package transport

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

	"promptfed/federation/method"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
)

// electing is a server of five clients, none of which joined.
func electing(t *testing.T) *Server {
	h := limiting(t, nil)
	h.set.Dir, h.set.Clients = t.TempDir(), len(h.clients)
	for k := range h.clients {
		h.clients[k] = clientRecord{}
	}
	if err := os.MkdirAll(filepath.Join(h.set.Dir, membersDir), 0o700); err != nil {
		t.Fatal(err)
	}
	return h
}

// proof is of a key that is made once.
var proof = sync.OnceValue(func() certs.Proof {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	p, err := certs.Identity{Signer: certs.Signer{Key: key}}.Proof()
	if err != nil {
		panic(err)
	}
	return p
})

// word is what an honest client says.
func word(change ...func(c *protocol.JoinRequest)) protocol.JoinRequest {
	c := protocol.JoinRequest{Backbone: "b", Tokens: "t", Examples: 10}
	c.Instance, c.Proof = "i", proof()
	c.RunSpec.Classes, c.RunSpec.Template = []string{"cat", "dog"}, "a {}."
	c.Participant.Task = method.ClientSpec{Backbone: "toy", Width: 4, Dim: 3}
	for _, f := range change {
		f(&c)
	}
	return c
}

func otherClasses(c *protocol.JoinRequest) { c.RunSpec.Classes = []string{"dog", "cat"} }

// joins lets a client say something; it must be let in, be asked to wait, or be refused.
func (h *Server) says(t *testing.T, client int, c protocol.JoinRequest, want string) {
	t.Helper()
	got, err := "in", h.admit(client, c, certs.Verifier{})
	if errors.As(err, new(laterError)) {
		got = "wait"
	} else if err != nil {
		got = "refused"
	}
	if got != want {
		t.Errorf("client %d: %s, want %s: %v", client, got, want, err)
	}
}

// begins tells whether the run starts with so many clients, and these take part in it.
func (h *Server) begins(t *testing.T, clients int, want bool, members ...int) {
	t.Helper()
	got, err := h.begin(clients)
	if got != want || err != nil {
		t.Fatalf("it starts: %v, %v", got, err)
	}
	var in []int
	for k := range h.clients {
		if h.clients[k].Participant.Joined {
			in = append(in, k)
		}
	}
	if !slices.Equal(in, members) {
		t.Errorf("clients %v, want %v", in, members)
	}
}

// again is the server started anew from its folder.
func (h *Server) again(t *testing.T) *Server {
	t.Helper()
	n := electing(t)
	n.set = h.set
	if err := n.readMembers(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Whatever the first client says, the two that agree begin, and what it said binds nobody afterwards; a server that was
// killed before or after the start decides the same. Where the first then says what the others do, it is let in.
func TestMajorityDecides(t *testing.T) {
	for name, lie := range map[string]func(c *protocol.JoinRequest){
		"classes":         otherClasses,
		"more classes":    func(c *protocol.JoinRequest) { c.RunSpec.Classes = []string{"cat", "dog", "owl"} },
		"template":        func(c *protocol.JoinRequest) { c.RunSpec.Template = "{}" },
		"evaluation sets": func(c *protocol.JoinRequest) { c.RunSpec.EvaluationSets = []string{"x"} },
		"files":           func(c *protocol.JoinRequest) { c.Backbone = "other" },
		"tokens":          func(c *protocol.JoinRequest) { c.Tokens = "other" },
		"patches":         func(c *protocol.JoinRequest) { c.Participant.Task.Patches = 7 },
		"width":           func(c *protocol.JoinRequest) { c.Participant.Task.Width = 5 },
		"width of another backbone": func(c *protocol.JoinRequest) {
			c.Participant.Task.Width, c.Participant.Task.Backbone = 5, "wide"
		},
	} {
		for _, kill := range []string{"never", "before", "after"} {
			t.Run(fmt.Sprint(name, ", killed ", kill, " the start"), func(t *testing.T) {
				h := electing(t)
				h.says(t, 3, word(lie), "in")
				h.begins(t, 3, false, 3)
				h.says(t, 1, word(), "wait")
				if kill == "before" {
					h = h.again(t)
				}
				h.says(t, 2, word(), "wait")
				h.begins(t, 3, true, 1, 2)
				if kill == "after" {
					h = h.again(t)
				}
				h.begins(t, 3, true, 1, 2)
				if h.clients[3].hasWord() || h.clients[3].Key.Key != nil ||
					h.runSpec.String() != word().RunSpec.String() {
					t.Errorf("%+v, %+v", h.clients[3], h.runSpec)
				}
				h.says(t, 1, word(), "in")
				h.says(t, 3, word(lie), "refused")
				h.says(t, 4, word(lie), "refused")
				h.says(t, 4, word(), "in")
				h.says(t, 3, word(), "in")
			})
		}
	}
}

// Of those that agree nobody waits, and the start needs no more than they are.
func TestAllAgree(t *testing.T) {
	h := electing(t)
	for k := range h.clients {
		h.says(t, k, word(), "in")
	}
	h.begins(t, 5, true, 0, 1, 2, 3, 4)
}

// Without a majority the run waits, and says so once; it starts when one more agrees, when one says what another does,
// or when one is revoked.
func TestTies(t *testing.T) {
	for name, end := range map[string]func(h *Server) (members []int){
		"one more": func(h *Server) []int { h.says(t, 4, word(), "wait"); return []int{1, 4} },
		"one agrees": func(h *Server) []int {
			h.says(t, 0, word(), "in")
			return []int{0, 1}
		},
		"one is revoked": func(h *Server) []int {
			h.clients[0].Lapsed = "revoked"
			if err := h.leaveOut(0); err != nil {
				t.Error(err)
			}
			return []int{1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := electing(t)
			h.says(t, 0, word(otherClasses), "in")
			h.says(t, 1, word(), "wait")
			h.begins(t, 2, false, 0, 1)
			if !strings.Contains(h.tie, `classes: client 0 has ["dog" "cat"], client 1 ["cat" "dog"]`) {
				t.Errorf("it says %q", h.tie)
			}
			h.begins(t, 2, true, end(h)...)
		})
	}
}

// What the configuration states decides at once, also about what a client said before it was stated.
func TestConfigurationDecides(t *testing.T) {
	h := electing(t)
	h.says(t, 0, word(otherClasses), "in")
	h.set.RunSpec.Classes = []string{"cat", "dog"}
	h = h.again(t)
	h.says(t, 0, word(otherClasses), "refused")
	h.set.Backbones = map[string]Backbone{"toy": {Digest: "b", Task: word().Participant.Task,
		Tokens: func(classes []string, template string) (string, error) {
			return map[string]string{"cat,dog a {}.": "t"}[strings.Join(classes, ",")+" "+template], nil
		}}}
	for _, lie := range []func(c *protocol.JoinRequest){func(c *protocol.JoinRequest) { c.Backbone = "other" },
		func(c *protocol.JoinRequest) { c.Tokens = "other" },
		func(c *protocol.JoinRequest) { c.Participant.Task.Patches = 7 }} {
		h.says(t, 0, word(lie), "refused")
	}
	h.says(t, 0, word(), "in")
	h.begins(t, 1, true, 0)
}

// Of two that name the same backbone and have other files neither takes part, while the others do; one of them does
// once the other is revoked, or has the same files.
func TestBackbonesWithoutMajority(t *testing.T) {
	for name, end := range map[string]func(h *Server){
		"revoked": func(h *Server) { h.clients[4].Lapsed = "revoked" },
		"agrees":  func(h *Server) { h.clients[4].Backbone = "b" },
	} {
		t.Run(name, func(t *testing.T) {
			h := electing(t)
			second := func(c *protocol.JoinRequest) { c.Participant.Task.Backbone = "second" }
			lie := func(c *protocol.JoinRequest) { c.Backbone = "other" }
			for k := range 3 {
				h.says(t, k, word(), "in")
			}
			h.says(t, 4, word(second, lie), "in")
			h.says(t, 3, word(second), "wait")
			h.begins(t, 5, true, 0, 1, 2)
			h = h.again(t)
			h.says(t, 3, word(second), "wait")
			h.says(t, 4, word(second, lie), "wait")
			end(h)
			h.says(t, 3, word(second), "in")
			h.says(t, 2, word(second, lie), "refused")
		})
	}
}

// A file of another version is refused with what to do.
func TestAgreementVersion(t *testing.T) {
	h := electing(t)
	if err := h.writeMember(agreementFile, agreement{Version: 3}); err != nil {
		t.Fatal(err)
	}
	if err := h.readMembers(); err == nil || !strings.Contains(err.Error(), "agreed.json has version 3") {
		t.Error(err)
	}
}
