package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Differential privacy survives servers and clients that are killed. With noise of the seed a run learns, byte for
// byte, what one process learns. With secret noise each side releases one noisy number per round, even if messages are
// sent again, and epsilon is that of as many rounds. This holds for noise of the server, and for noise of clients
// behind secure aggregation, where a client that comes back continues its session.
func TestChaosPrivacy(t *testing.T) {
	parallel(t)
	first := seed(t)
	for name, c := range map[string]struct {
		where, config string
		noise         func(s *site) []string // files of the sides that add noise
	}{
		"server": {"server", "", func(s *site) []string { return []string{s.at("serve", "hub", "noise.json")} }},
		"clients": {"client", "secure_aggregation: {threshold: 0.6}\n", func(s *site) (files []string) {
			for k := range s.clients {
				files = append(files, filepath.Join(s.client(k), "noise.json"))
			}
			return files
		}},
	} {
		for _, seeded := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/seeded=%v", name, seeded), func(t *testing.T) {
				parallel(t)
				tr := trial{method: "promptfl", clients: 3, rounds: 5, quorum: 1, deadline: time.Hour, share: 1,
					delay:   20 * time.Millisecond,
					options: "{tokens: 4, dp: {noise: 0.5, clip: 1, delta: 0.01, where: " + c.where + "}}",
					config:  "with: [dp]\n" + c.config}
				if seeded {
					tr.flags = []string{"--insecure-dp"}
				}
				s := open(t, tr, first)
				var kills []step // one per round
				for n := range tr.rounds {
					kills = append(kills, step{rounds: n, after: drawn(s.rand, 0, 200*time.Millisecond),
						fault:  []string{"kill the server", "kill a member"}[n%2],
						target: s.rand.IntN(tr.clients), lasts: drawn(s.rand, 0, 3*time.Second)})
				}
				s.survive(kills)
				if seeded {
					s.check()
				}
				if t.Failed() || seeded {
					return
				}
				got, want := s.records("serve"), s.records("run")
				for i := range got {
					if e := got[i].Notes["epsilon"]; e == 0 || e != want[i].Notes["epsilon_nominal"] {
						t.Errorf("round %d: epsilon %v, want %v", i, e, want[i].Notes["epsilon_nominal"])
					}
				}
				for _, path := range c.noise(s) {
					var noise struct{ Released map[int][]string }
					b, err := os.ReadFile(path)
					if err == nil {
						err = json.Unmarshal(b, &noise)
					}
					if err != nil || len(noise.Released) != tr.rounds || slices.ContainsFunc(slices.Collect(
						maps.Values(noise.Released)), func(list []string) bool { return len(list) != 1 }) {
						t.Errorf("%s: %v, %v", path, noise.Released, err)
					}
				}
			})
		}
	}
}
