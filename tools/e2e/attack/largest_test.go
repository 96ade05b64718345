package attack

import (
	"os/exec"
	"strings"
	"testing"
)

// A client accepts what its own limit allows, whatever the limit of the server is. It refuses a larger instruction
// before any part of its tensors arrives; both sides name the flag that raises the limit, and the server does not wait
// for an answer. A larger configuration ends the client.
func TestLargest(t *testing.T) {
	t.Parallel()
	s := serve(t, 3, "--limit", "4096")
	out, err := exec.Command(programs.Promptfed, "join", s.url(), "--client", "0", "--tls", s.at("certs"),
		"--state", s.at("other"), "--set", "data.set=synthetic", "--largest", "100").CombinedOutput()
	if text := strings.TrimSpace(string(out)); err == nil || !strings.HasPrefix(text, "promptfed: the server's "+
		"invitation: too large: ") || !strings.HasSuffix(text, "at most 100 are taken (join --largest)") ||
		strings.Contains(text, "\n") {
		t.Errorf("%v: %s", err, text)
	}
	s.joins(1, 2)
	s.background(part{largest: 8000}) // 4*512 numbers have 8192 bytes, after a header of 80
	counted(t, s.ends(), 1, 2)
	s.learned(3)
	if log := s.log.String(); !strings.Contains(log, "the instruction's tensors: too large: 8272 bytes; at most 8000 "+
		"are taken (join --largest)") {
		t.Error("the server does not say why client 0 has no answer")
	}
}
