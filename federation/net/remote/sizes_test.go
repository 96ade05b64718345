package remote

import (
	"fmt"
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/protocol"
)

// A request to join is refused by its sizes and their product before any text is expanded, with and without classes of
// the server, and no text is expanded under the server's lock.
func TestJoinExpandsNothingLarge(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprint("class ", i)
	}
	for name, c := range map[string]struct {
		template string
		classes  []string
		says     string
	}{
		"a million places, one class of 2 MB": {strings.Repeat("{}", 1<<20), []string{long}, "bytes; at most"},
		"a long template":                     {strings.Repeat("{} ", 3000), many[:10], "bytes; at most"},
		"a long class":                        {"{}", []string{"cat", long}, "bytes; at most"},
		"many classes":                        {"{}", many, "100000 classes are too"},
		"the product":                         {strings.Repeat("{}", 100), many[:50_000], "bytes; at most"},
		"no class":                            {"{}", nil, "0 classes are too"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newElection(t)
			h.set.Backbones = map[string]spec.OwnBackbone{"toy": {Digest: "b", Task: request().Participant.Task,
				Tokens: func(classes []string, template string) (string, error) {
					t.Error("texts are expanded")
					return "t", nil
				}}}
			r := request()
			r.RunSpec.Template, r.RunSpec.Classes = c.template, c.classes
			err := h.admit(h.newSession(0, r.Proof), r)
			if err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 2000 {
				t.Errorf("%.500v", err)
			}
		})
	}
}

// The texts of an honest request are divided into tokens while the server is not locked.
func TestTokensOutsideTheLock(t *testing.T) {
	h := newElection(t)
	expanded := 0
	h.set.Backbones = map[string]spec.OwnBackbone{"toy": {Digest: "b", Task: request().Participant.Task,
		Tokens: func([]string, string) (string, error) {
			expanded++
			if !h.mu.TryLock() {
				t.Error("the server is locked")
				return "t", nil
			}
			h.mu.Unlock()
			return "t", nil
		}}}
	h.says(t, 0, request(), "in")
	if expanded != 1 {
		t.Errorf("texts are expanded %d times", expanded)
	}
}

// Digests have the size of a digest, and towers that of a tower.
func TestSizesOfARequest(t *testing.T) {
	long := strings.Repeat("d", 65)
	for name, lie := range map[string]func(c *protocol.JoinRequest){
		"backbone": func(c *protocol.JoinRequest) { c.Backbone = long },
		"tokens":   func(c *protocol.JoinRequest) { c.Tokens = long },
		"numerics": func(c *protocol.JoinRequest) { c.Numerics = long },
		"layers":   func(c *protocol.JoinRequest) { c.Participant.Task.TextLayers = 1 << 40 },
		"units":    func(c *protocol.JoinRequest) { c.Participant.Task.VisionUnits = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newElection(t)
			h.says(t, 0, request(lie), "refused")
		})
	}
}

// Without backbones of its own, the server does not compare a client's feature dimension before the start. At the
// start, a client whose dimension is more than twice the median, and above 1,024, does not take part; a later one is
// refused. A folder that holds such a client from an earlier release loses it, and the run goes on.
func TestDimOfOneClient(t *testing.T) {
	own := func(dim int) func(c *protocol.JoinRequest) {
		return func(c *protocol.JoinRequest) { c.Participant.Task.Backbone, c.Participant.Task.Dim = "own", dim }
	}
	h := newElection(t)
	h.says(t, 0, request(own(1<<16)), "in")
	for k := 1; k < 4; k++ {
		h.says(t, k, request(), "in")
	}
	h.begins(t, 4, true, 1, 2, 3)
	if !strings.Contains(h.clients[0].reason, "dimension 65536; at most 1024") {
		t.Error(h.clients[0].reason)
	}
	h.says(t, 0, request(own(1<<16)), "refused")
	h.says(t, 4, request(own(1025)), "refused")
	h.says(t, 4, request(own(1024)), "in")

	old := request(own(1 << 16))
	old.Participant.Joined = true
	if err := h.writeMember("client-0", old); err != nil {
		t.Fatal(err)
	}
	h = h.restarted(t)
	if h.clients[0].hasRequest() || !h.clients[1].hasRequest() {
		t.Errorf("%+v", h.clients)
	}
}

// The server's own backbones decide at once.
func TestDimOfTheServersBackbones(t *testing.T) {
	h := newElection(t)
	task := request().Participant.Task
	task.Dim = 1280
	h.set.Backbones = map[string]spec.OwnBackbone{"big": {Digest: "b", Task: task}}
	for dim, want := range map[int]string{2560: "in", 2561: "refused"} {
		h.says(t, 0, request(func(c *protocol.JoinRequest) { c.Participant.Task.Dim = dim }), want)
	}
}

// A client that takes part says the same of itself whenever it joins again: what others got depends on it.
func TestClientStaysWhatItIs(t *testing.T) {
	h := newLimited(t, nil)
	k := &h.clients[1]
	k.Participant.Task = method.ClientSpec{Client: 1, Backbone: "own", Dim: 8}
	k.Participant.Domain, k.Participant.Digest, k.Examples = "a", "d", 10
	for i, change := range []func(c *protocol.JoinRequest){
		func(c *protocol.JoinRequest) {},
		func(c *protocol.JoinRequest) { c.Numerics = "other machine" },
		func(c *protocol.JoinRequest) { c.Participant.Task.Dim = 16 },
		func(c *protocol.JoinRequest) { c.Participant.Task.Backbone = "another" },
		func(c *protocol.JoinRequest) { c.Participant.Domain = "b" },
		func(c *protocol.JoinRequest) { c.Participant.Digest = "e" },
		func(c *protocol.JoinRequest) { c.Examples = 500 },
	} {
		c := k.JoinRequest
		change(&c)
		if err := k.changed(c); (err == nil) != (i < 2) || err != nil && !strings.Contains(err.Error(),
			"client 1 takes part with backbone own, domain \"a\" and 10 examples") {
			t.Errorf("%d: %v", i, err)
		}
		if k.Participant.Joined = false; k.changed(c) != nil {
			t.Errorf("%d: a client that does not take part yet is refused", i)
		}
		k.Participant.Joined = true
	}
}
