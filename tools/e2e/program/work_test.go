package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
)

// A run whose clients train in two other processes, one of which is killed with kill -9 and one of which starts late,
// leaves the files of a run in one process. A worker that would train something else is refused.
func TestRunOnACluster(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	conf, addr := at("small.yaml"), busytest.Address(t, "127.0.0.1")
	mustRun(t, "run", conf, "--out", at("alone"))
	spread := func() *process {
		return start(t, "run", conf, "--out", at("spread"), "--cluster", "listen://"+addr, "--token", "secret")
	}
	run := spread()
	work := func(more ...string) *process {
		return start(t, append([]string{"work", "nats://" + addr, "--token", "secret", "--jobs", "1", "--set",
			"runtime.models=" + dir, "--set", "runtime.cache=" + at("cache")}, more...)...)
	}
	run.says(t, "start workers with")
	wrong := work("--set", "train.lr=0.5")
	<-wrong.Done
	if !strings.Contains(wrong.said(), ": data: synthetic") { // what it works on
		t.Errorf("a worker does not describe its data: %s", wrong.said())
	}
	if !strings.Contains(wrong.said(), "training: the server has") || wrong.ProcessState.ExitCode() != failed ||
		!strings.Contains(run.said(), "a worker is refused") {
		t.Errorf("%s", wrong.said())
	}
	for {
		first := work()
		first.says(t, "joined a run")
		run.says(t, "a worker joined")
		if first.killed(); committed(at("spread")) < 5 { // a round is left for another worker
			break
		}
		run.killed()
		os.RemoveAll(at("spread"))
		run = spread()
	}
	work() // and waits for another run in the end
	run.ends(t)
	if t.Failed() {
		return
	}
	if _, text, code := call("work", "nats://"+addr, "--token", "secret", "--idle", "1s"); code != failed ||
		!strings.Contains(text, "no server answered") {
		t.Errorf("exit %d, %s", code, text)
	}
	if !bytes.Equal(together(t, at("spread")), together(t, at("alone"))) {
		t.Error("the workers learned something else than one process")
	}
	if !strings.Contains(run.said(), "workers=2") {
		t.Error("the run does not tell of two workers")
	}
	if _, text, code := call("run", conf, "--cluster", "nats://"+addr, "--queue", "A b"); code != usage ||
		!strings.Contains(text, "--queue") {
		t.Errorf("exit %d, %s", code, text)
	}
	if _, text, code := call("work", "nats://"+addr, "--jobs", "-1"); code != usage || !strings.Contains(text,
		"--jobs") {
		t.Errorf("exit %d, %s", code, text)
	}
}
