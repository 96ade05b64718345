package program

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
)

// Processes of a server and its clients are killed with -9 at random until the run completes; the result is that of an
// undisturbed run. PROMPTFED_TEST_CHAOS is the number of clients of a longer test, with 30 rounds and a minute of
// kills.
func TestChaos(t *testing.T) {
	t.Parallel()
	clients, rounds, kills := 3, 6, 6
	if n, err := strconv.Atoi(os.Getenv("PROMPTFED_TEST_CHAOS")); err == nil {
		clients, rounds, kills = n, 30, 100
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := setup(t)
	at := func(name ...any) string { return filepath.Join(dir, fmt.Sprint(name...)) }
	text := string(read(t, dir, "small.yaml"))
	for old, is := range map[string]string{"clients: 4": fmt.Sprint("clients: ", clients),
		"rounds: 6":         fmt.Sprint("rounds: ", rounds),
		"train: 6, test: 4": "train: 24, test: 12"} {
		text = strings.ReplaceAll(text, old, is)
	}
	filetest.Write(t, at("chaos.yaml"), text)
	mustRun(t, "run", at("chaos.yaml"), "--out", at("run"))
	addr := busytest.Address(t, "127.0.0.1")
	serve := func(more ...string) *process {
		return start(t, append([]string{"serve", at("chaos.yaml"), "--out", at("serve"), "--listen", addr, "--quorum",
			"1", "--deadline", "1h"}, more...)...)
	}
	join := func(k int) *process {
		return start(t, "join", "https://"+addr, "--client", fmt.Sprint(k), "--config", at("chaos.yaml"), "--partition",
			"--state", at("client", k))
	}
	server, list, dirs := serve(), make([]*process, clients), []string{at("serve")}
	for k := range list {
		list[k] = join(k)
		dirs = append(dirs, at("client", k))
	}
	killed := 0
	busytest.Until(t, "the end of the run", func() bool {
		busytest.Delay(time.Duration(100+r.IntN(900)) * time.Millisecond)
		if committed(at("serve")) < rounds && killed < kills {
			k := r.IntN(clients + clients/2 + 1)
			p := server
			if k < clients {
				p = list[k]
			}
			if !p.Ended() && p.killed() {
				killed++
				if p == server {
					server = serve("--resume")
				} else {
					list[k] = join(k)
				}
			}
		}
		over := ended(t, &server, serve, list, dirs) && server.Ended()
		if server.Ended() {
			server.ends(t)
		}
		return over || t.Failed()
	})
	t.Logf("%d kills", killed)
	if !t.Failed() && !bytes.Equal(together(t, dirs...), together(t, at("run"))) {
		t.Error("server and clients learned something else than one process")
	}
}
