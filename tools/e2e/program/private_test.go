package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Under differential privacy server and clients print the protection before they train; nobody can repeat the noise,
// and epsilon is recorded. With --insecure-dp on both sides the noise comes from the seed: the bytes are those of one
// process, and no epsilon is recorded. --insecure-dp on one side alone is refused.
func TestPrivateNoise(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"server", "client"} {
		t.Run(where, func(t *testing.T) {
			dir := setup(t)
			at := func(name string) string { return filepath.Join(dir, name) }
			set := func(list ...string) []string {
				return append(list, "--set", "with=[dp]", "--set", "options={global_tokens: 4, local_tokens: 4, dp: "+
					"{noise: 0.5, delta: 0.01, where: "+where+"}}", "--set", "train.rounds=2", "--set",
					"partition.clients=2")
			}
			mustRun(t, set("run", at("small.yaml"), "--out", at("run"))...)
			for _, insecure := range []bool{false, true} {
				out, addr := at(fmt.Sprint("serve", insecure)), busytest.Address(t, "127.0.0.1")
				flag, protection := []string(nil), "noise 0.5 by the "+where
				if insecure {
					flag, protection = []string{"--insecure-dp"}, "it protects nothing"
				}
				server := start(t, append(set("serve", at("small.yaml"), "--out", out, "--listen", addr), flag...)...)
				join := func(k int, more ...string) []string {
					return append(set("join", "https://"+addr, "--client", fmt.Sprint(k), "--config",
						at("small.yaml"), "--partition", "--state", fmt.Sprint(out, k)), more...)
				}
				wrong, say := []string{"--insecure-dp"}, "the server wants noise that nobody else knows"
				if insecure {
					wrong, say = nil, "add --insecure-dp to take part anyway"
				}
				if _, text, code := call(join(0, wrong...)...); code != failed || !strings.Contains(text, say) {
					t.Errorf("exit %d, %s", code, text)
				}
				text := mustRun(t, "status", "https://"+addr)
				if !strings.Contains(text, "differential privacy") || !strings.Contains(text, protection) {
					t.Errorf("status:\n%s", text)
				}
				dirs := []string{out}
				var clients []*process
				for k := range 2 {
					clients = append(clients, start(t, join(k, flag...)...))
					dirs = append(dirs, fmt.Sprint(out, k))
				}
				for _, p := range append(clients, server) {
					p.ends(t)
				}
				if t.Failed() {
					return
				}
				goldentest.Contains(t, clients[0].said(), "what leaves this machine", "parameters that leave",
					"insecure: encrypted, but no", "the server sees each upload", protection)
				resumed := append(set("serve", at("small.yaml"), "--out", out, "--listen", addr, "--resume"), flag...)
				_, text, _ = call(append(resumed, "--clients", "3")...)
				goldentest.Contains(t, text, "cannot resume: ", "partition.clients is 2 there, 3 now")
				summary := string(read(t, out, "summary.json"))
				if real := strings.Contains(summary, `"epsilon":`); real == insecure ||
					strings.Contains(summary, `"epsilon_nominal":`) != insecure {
					t.Errorf("with --insecure-dp %v: %s", insecure, summary)
				}
				if same := bytes.Equal(together(t, dirs...), together(t, at("run"))); same != insecure {
					t.Errorf("with --insecure-dp %v the bytes of one process: %v", insecure, same)
				}
				for _, path := range []string{filepath.Join(out, "hub", "noise.json"),
					filepath.Join(out+"0", "noise.json")} {
					if st, err := os.Stat(path); insecure != (err != nil) || err == nil && st.Mode().Perm() != 0o600 {
						t.Errorf("%s: %v, %v", path, st, err)
					}
				}
				if !insecure {
					goldentest.NoError(t, os.Remove(filepath.Join(out, "hub", "noise.json")))
					_, text, _ = call(resumed...)
					goldentest.Contains(t, text, "cannot resume: ", "noise.json is missing")
				}
			}
			if strings.Contains(string(read(t, at("run"), "summary.json")), `"epsilon":`) {
				t.Error("a simulation records an epsilon")
			}
		})
	}
}
