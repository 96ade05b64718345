package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// serveTrial starts the server.
func (s *server) serveTrial(more ...string) {
	s.t.Helper()
	s.process = launch(s.t, append([]string{programs.Promptfed, "serve", s.at("attack.yaml"), "--out", s.at("out"),
		"--listen", s.address, "--tls", s.at("certs")}, more...)...)
	s.says("waiting for clients")
}

// refuses runs promptfed, which must end by itself with one line on standard error, and returns that line.
func refuses(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.CommandContext(busytest.Context(t), programs.Promptfed, args...)
	var said strings.Builder
	c.Stderr = &said
	if err := c.Run(); err == nil || c.ProcessState == nil || c.ProcessState.ExitCode() < 0 {
		t.Errorf("promptfed %v is not refused: %v", args, err)
	}
	var lines []string
	for line := range strings.Lines(said.String()) {
		if strings.HasPrefix(line, "promptfed: ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		t.Errorf("promptfed %v says %q, not one line", args, &said)
	}
	return strings.Join(lines, "")
}

// A client without a terminal, as under a service manager, records the terms of its first start. If the server comes
// back with terms that reveal more, it gets only the number of the client, until the user gives --yes once.
func TestChangedTerms(t *testing.T) {
	t.Parallel()
	s := openTrial(t)
	join := []string{"join", s.url(), "--client", "0", "--config", s.at("attack.yaml"), "--partition",
		"--state", s.at("client-0"), "--tls", s.at("certs")}
	again := func(more ...string) {
		t.Helper()
		p := launch(t, append(append([]string{programs.Promptfed}, join...), more...)...)
		s.says("msg=joined client=0")
		p.Kill()
	}
	s.serveTrial()
	again()
	var terms []struct{ What, Is string }
	text, err := os.ReadFile(s.at("client-0", "agreed.json"))
	if err == nil {
		err = json.Unmarshal(text, &terms)
	}
	if err != nil || !strings.Contains(fmt.Sprint(terms), "{rounds 6, with all 2 clients}") {
		t.Errorf("the recorded terms of a service: %v, %v", terms, err)
	}
	s.Kill()
	s.serveTrial("--resume", "--set", "eval.confusion=all")
	join = append(join, "--set", "eval.confusion=all")
	line := refuses(t, join...)
	goldentest.Contains(t, line, "the terms have changed", "confusion matrix", "add --yes")
	if strings.Contains(s.log.String(), "client=0") {
		t.Error("the server got more from the client than its number")
	}
	again("--yes")
	s.Kill()
	s.serveTrial("--resume", "--set", "eval.confusion=all")
	again()
}
