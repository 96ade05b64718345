package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/net/wire"
	"promptfed/runtime/goldentest"
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
			_, err := h.enters(0, r)
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
			for _, mu := range []*sync.Mutex{&h.members.mu, &h.mail.mu, &h.counts.mu,
				&h.status.mu, &h.callers[0].file} {
				if !mu.TryLock() {
					t.Error("the server is locked")
					return "t", nil
				}
				mu.Unlock()
			}
			return "t", nil
		}}}
	h.says(t, 0, request(), "in")
	if expanded != 1 {
		t.Errorf("texts are expanded %d times", expanded)
	}
}

// Digests have the size of a digest, and towers that of a tower. The name of a backbone is no path.
func TestSizesOfARequest(t *testing.T) {
	long := strings.Repeat("d", 65)
	for name, lie := range map[string]func(c *wire.JoinRequest){
		"backbone": func(c *wire.JoinRequest) { c.Backbone = long },
		"tokens":   func(c *wire.JoinRequest) { c.Tokens = long },
		"numerics": func(c *wire.JoinRequest) { c.Numerics = long },
		"path":     func(c *wire.JoinRequest) { c.Participant.Task.Backbone = "../x" },
		"parent":   func(c *wire.JoinRequest) { c.Participant.Task.Backbone = ".." },
		"layers":   func(c *wire.JoinRequest) { c.Participant.Task.TextLayers = 1 << 40 },
		"units":    func(c *wire.JoinRequest) { c.Participant.Task.VisionUnits = -1 },
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
	own := func(dim int) func(c *wire.JoinRequest) {
		return func(c *wire.JoinRequest) { c.Participant.Task.Backbone, c.Participant.Task.Dim = "own", dim }
	}
	h := newElection(t)
	h.says(t, 0, request(own(1<<16)), "in")
	for k := 1; k < 4; k++ {
		h.says(t, k, request(), "in")
	}
	h.begins(t, 4, true, 1, 2, 3)
	if why := h.counts.tally(0).reason; !strings.Contains(why, "dimension 65536; at most 1024") {
		t.Error(why)
	}
	h.says(t, 0, request(own(1<<16)), "refused")
	h.says(t, 4, request(own(1025)), "refused")
	h.says(t, 4, request(own(1024)), "in")

	old := request(own(1 << 16))
	old.Participant.Joined = true
	goldentest.NoError(t, h.write("client-0", old))
	h = h.restarted(t)
	if r := h.members.roster().clients; r[0].hasRequest() || !r[1].hasRequest() {
		t.Errorf("%+v", r)
	}
}

// The server's own backbones decide at once.
func TestDimOfTheServersBackbones(t *testing.T) {
	h := newElection(t)
	task := request().Participant.Task
	task.Dim = 1280
	h.set.Backbones = map[string]spec.OwnBackbone{"big": {Digest: "b", Task: task}}
	for dim, want := range map[int]string{2560: "in", 2561: "refused"} {
		h.says(t, 0, request(func(c *wire.JoinRequest) { c.Participant.Task.Dim = dim }), want)
	}
}

// A client that takes part says the same of itself whenever it joins again: what others got depends on it.
func TestClientStaysWhatItIs(t *testing.T) {
	k := &member{card: &card{}, joined: true}
	k.Participant.Task = method.ClientSpec{Client: 1, Backbone: "own", Dim: 8}
	k.Participant.Domain, k.Participant.Digest, k.Examples = "a", "d", 10
	for i, change := range []func(c *wire.JoinRequest){
		func(c *wire.JoinRequest) {},
		func(c *wire.JoinRequest) { c.Numerics = "other machine" },
		func(c *wire.JoinRequest) { c.Participant.Task.Dim = 16 },
		func(c *wire.JoinRequest) { c.Participant.Task.Backbone = "another" },
		func(c *wire.JoinRequest) { c.Participant.Domain = "b" },
		func(c *wire.JoinRequest) { c.Participant.Digest = "e" },
		func(c *wire.JoinRequest) { c.Examples = 500 },
	} {
		c := *k.card
		change(&c.JoinRequest)
		if err := k.differs(&c); (err == nil) != (i < 2) || err != nil && !strings.Contains(err.Error(),
			"client 1 takes part with backbone own, domain \"a\" and 10 examples") {
			t.Errorf("%d: %v", i, err)
		}
		if k.joined = false; k.differs(&c) != nil {
			t.Errorf("%d: a client that does not take part yet is refused", i)
		}
		k.joined = true
	}
}
