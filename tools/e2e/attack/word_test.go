package attack

import (
	"strings"
	"testing"

	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
)

// words are statements of a client about its data and its backbone that no other client makes.
var words = map[string]func(c *wire.JoinRequest){
	"classes":  func(c *wire.JoinRequest) { c.RunSpec.Classes = []string{"square", "circle"} },
	"template": func(c *wire.JoinRequest) { c.RunSpec.Template = "{}" },
	"files":    func(c *wire.JoinRequest) { c.Backbone = "false" },
	"tokens":   func(c *wire.JoinRequest) { c.Tokens = "false" },
	"width":    func(c *wire.JoinRequest) { c.Participant.Task.Width = 511 },
}

// lies joins first, with such a statement; ended receives how that ends.
func (s *server) lies(client int, word string) (ended chan error) {
	s.t.Helper()
	ended = make(chan error, 1)
	ctx := busytest.Context(s.t)
	go func() { ended <- s.join(ctx, part{client: client, says: words[word]}) }()
	return ended
}

// refuses waits until a client ends, and fails unless it says something.
func (s *server) refuses(ended chan error, say string) {
	s.t.Helper()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), say) {
			s.t.Errorf("the client says %v", err)
		}
	case <-busytest.Hung(s.t):
		s.t.Fatal("the client is not refused")
	}
}

// Whatever the first client says, the two others decide: they train without it, and the server refuses it with the
// difference. The server does not keep its statements for a client that joins in its place.
func TestFirstWord(t *testing.T) {
	for word := range words {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3)
			ended := s.lies(0, word)
			s.says("msg=joined client=0")
			s.hold(1) // the run lasts until client 0 heard of it
			s.joins(1, 2)
			s.refuses(ended, "the server refuses this client")
			s.hold(0)
			counted(t, s.ends(), 1, 2)
			s.learned(3)
			if !strings.Contains(s.log.String(), "most others agree on something else") {
				t.Error("the server does not say that client 0 does not take part")
			}
		})
	}
}

// If two clients disagree, neither decides, also after a restart of the server. The server forgets the statements of a
// client whose certificate is revoked, and the other client begins.
func TestWordOfRevoked(t *testing.T) {
	for word := range words {
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			s := serve(t, 3, "--wait", "2")
			s.lies(0, word)
			s.says("msg=joined client=0")
			s.joins(1)
			s.says("no majority agrees")
			s.Kill()
			s.start("--resume")
			s.says("no majority agrees")
			s.certs("--revoke", "client-0")
			records := s.ends()
			if got := records[0].Clients; len(got) != 1 || got[0] != 1 {
				t.Errorf("the first round counts clients %v", got)
			}
			s.learned(3)
		})
	}
}

// A server with a list of classes holds clients to this list, also those that joined before it had the list.
func TestWordAgainstClasses(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	ended := s.lies(0, "classes")
	s.says("msg=joined client=0")
	s.Kill()
	classes := filetest.Write(t, s.at("classes.txt"), "circle\nsquare\n")
	s.start("--resume", "--classes", classes)
	s.hold(1)
	s.joins(1, 2)
	s.refuses(ended, "classes: the server has")
	s.hold(0)
	counted(t, s.ends(), 1, 2)
}
