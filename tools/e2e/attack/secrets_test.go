package attack

import (
	"os"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// The program refuses keys and tokens that the group or others may read, before it sends or opens
// anything, with one line that contains the chmod to run. Only the owner can read a renewed key, whatever the mode of
// the old one was.
func TestReadableSecrets(t *testing.T) {
	t.Parallel()
	s := openTrial(t)
	goldentest.NoError(t, os.WriteFile(s.at("token"), []byte("secret\n"), 0o600))
	s.process = launch(t, programs.Promptfed, "serve", s.at("attack.yaml"), "--out", s.at("plain"), "--listen",
		s.address, "--token-file", s.at("token"))
	s.says("waiting for clients")
	s.Kill() // it made its key
	tls, plain := []string{"--tls", s.at("certs")}, []string{"--token-file", s.at("token")}
	serve := func(out string, more ...string) []string {
		return append([]string{"serve", s.at("attack.yaml"), "--out", s.at(out), "--listen", s.address}, more...)
	}
	join := func(more ...string) []string {
		return append([]string{"join", s.url(), "--client", "0", "--config", s.at("attack.yaml"),
			"--state", s.at("state")}, more...)
	}
	status := func(more ...string) []string { return append([]string{"status", s.url()}, more...) }
	for _, c := range []struct {
		path string
		args []string
	}{
		{s.at("certs", "client-0-key.pem"), join(tls...)},
		{s.at("certs", "server-key.pem"), serve("out", tls...)},
		{s.at("certs", "status-key.pem"), status(tls...)},
		{s.at("certs", "worker-key.pem"), append([]string{"work", "nats://" + s.address}, tls...)},
		{s.at("certs-authority", "ca-key.pem"), []string{"certs", s.at("certs"), "--clients", "4"}},
		{s.at("certs-authority", "ca-key.pem"), []string{"certs", s.at("certs"), "--revoke", "client-1"}},
		{s.at("token"), serve("out", plain...)},
		{s.at("token"), join(plain...)},
		{s.at("token"), status(plain...)},
		{s.at("plain", "hub", "key.pem"), serve("plain", append(plain, "--resume")...)},
	} {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
			goldentest.NoError(t, os.Chmod(c.path, mode))
			if line := refuses(t, c.args...); !strings.Contains(line, "run chmod 600 "+c.path) {
				t.Errorf("%s with mode %o: %s", c.path, mode, line)
			}
		}
		goldentest.NoError(t, os.Chmod(c.path, 0o600))
	}
	key := s.at("certs", "client-1-key.pem")
	goldentest.NoError(t, os.Chmod(key, 0o644))
	call(t, "certs", s.at("certs"), "--renew", "client-1")
	if st, err := os.Stat(key); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("a renewed key: %v, %v", st, err)
	}
}
