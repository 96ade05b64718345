//go:build unix

package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// srun starts processes with the variables of a task each, as srun does.
func srun(t *testing.T, tasks, restarts int, env []string, args ...string) []*process {
	t.Helper()
	var out []*process
	for rank := range tasks {
		own := append([]string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", fmt.Sprintf("SLURM_NTASKS=%d", tasks),
			fmt.Sprintf("SLURM_PROCID=%d", rank), fmt.Sprintf("SLURM_RESTART_COUNT=%d", restarts),
			"SLURM_CPUS_PER_TASK=1"}, env...)
		out = append(out, startIn(t, own, append([]string{"launch"}, args...)...))
	}
	return out
}

// Four tasks of a Slurm job learn what one process learns, although one that trains is killed with kill -9. The folder
// of their meeting is removed afterwards.
func TestLaunch(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	mustRun(t, "run", at("small.yaml"), "--out", at("alone"))
	tasks := srun(t, 4, 0, nil, at("small.yaml"), "--out", at("spread"), "--meet", at("meet"))
	tasks[0].says(t, "a worker joined")
	dies := 0
	busytest.Until(t, "a task that trains", func() bool {
		dies = slices.IndexFunc(tasks, func(p *process) bool { return strings.Contains(p.said(), "joined a run") })
		return dies > 0
	})
	tasks[dies].killed()
	for n, p := range tasks {
		if n != dies {
			p.ends(t)
		}
	}
	if t.Failed() {
		return
	}
	if !bytes.Equal(together(t, at("spread")), together(t, at("alone"))) {
		t.Error("the tasks learned something else than one process")
	}
	if _, err := os.Stat(at("meet")); !os.IsNotExist(err) {
		t.Errorf("the folder that the tasks met in: %v", err)
	}
}

// SIGUSR1 to all tasks, which Slurm sends before the time limit, ends the run after a round and requeues the job. The
// next start continues to the result of one process. scontrol is a script that records its arguments.
func TestLaunchIsQueuedAgain(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	long := strings.ReplaceAll(string(read(t, dir, "small.yaml")), "rounds: 6", "rounds: 40")
	bin := at("bin")
	goldentest.NoError(t, os.Mkdir(bin, 0o755))
	for name, text := range map[string]string{"long.yaml": long,
		"bin/scontrol": "#!/bin/sh\necho \"$@\" >" + at("asked") + "\n"} {
		goldentest.NoError(t, os.WriteFile(at(name), []byte(text), 0o755))
	}
	mustRun(t, "run", at("long.yaml"), "--out", at("alone"))
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	args := []string{at("long.yaml"), "--out", at("spread"), "--meet", at("meet"), "--force"}
	first := srun(t, 2, 0, env, args...)
	for {
		first[0].says(t, "a worker joined")
		first[0].says(t, "round 2")
		for _, p := range first {
			p.Process.Signal(syscall.SIGUSR1)
		}
		<-first[0].Done
		<-first[1].Done
		if first[0].Ending != nil {
			break
		}
		os.RemoveAll(at("spread")) // the run was faster than this test, and begins anew
		first = srun(t, 2, 0, env, args...)
	}
	if first[0].ProcessState.ExitCode() != failed || first[1].Ending != nil {
		t.Errorf("%v, %v", first[0].Ending, first[1].Ending)
	}
	before := committed(at("spread"))
	if before < 2 || before >= 40 {
		t.Fatalf("%d rounds when it was stopped", before)
	}
	if got := string(read(t, dir, "asked")); got != "requeue 7\n" {
		t.Errorf("scontrol was asked %q", got)
	}
	again := srun(t, 2, 1, env, args...)
	again[0].ends(t)
	again[1].ends(t)
	if !bytes.Equal(together(t, at("spread")), together(t, at("alone"))) || committed(at("spread")) != 40 {
		t.Errorf("after %d and %d rounds something else was learned than in one process", before,
			committed(at("spread")))
	}
}

// Three parts of a sweep in one folder, the first of which is killed and repeated, give the result of the sweep. A part
// that is running, and the folder while parts are running, are refused.
func TestSweepArray(t *testing.T) {
	dir, file := setupSweep(t, 2)
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	mustRun(t, "sweep", file, "--out", whole)
	part := func(i int) []string {
		return []string{"sweep", file, "--out", parts, "--array", fmt.Sprintf("%d/3", i)}
	}
	for ran := false; !ran; {
		os.RemoveAll(parts)
		first := start(t, part(0)...)
		first.says(t, "3 cells")
		first.Process.Signal(syscall.SIGSTOP)
		wrong := ""
		for words, args := range map[string][]string{
			"another promptfed does this part":    part(0),
			"another promptfed works in":          {"sweep", file, "--out", parts, "--resume"},
			"parts of 3 are numbered from 0 to 2": part(3),
			"none of them may empty":              append(part(1), "--force"),
			`"1": expected I/N`:                   {"sweep", file, "--array", "1"},
		} {
			if _, text, code := call(args...); code != usage || !strings.Contains(text, words) {
				wrong += fmt.Sprintf("%v: exit %d, %s\n", args, code, text)
			}
		}
		if ran = first.killed(); ran && wrong != "" { // else it ended before it was stopped
			t.Error(wrong)
		} else if !ran {
			first.ends(t)
		}
	}
	var all []*process
	for i := range 3 {
		all = append(all, start(t, part(i)...))
	}
	for _, p := range all {
		p.ends(t)
	}
	for _, c := range cells(t, whole) {
		if result(t, filepath.Join(parts, c)) != result(t, filepath.Join(whole, c)) {
			t.Errorf("cell %s differs", c)
		}
	}
	if !bytes.Equal(read(t, parts, "sweep.json"), read(t, whole, "sweep.json")) ||
		len(read(t, parts, "tables.csv")) == 0 {
		t.Error("the parts have another plan, or no report")
	}
}

// A run reports a missing server and a URL of another kind at once. Clients and workers wait for their server.
func TestClusterIsNotThere(t *testing.T) {
	dir := setup(t)
	for url, words := range map[string]string{"nats://127.0.0.1:1": "no servers", "nats://bogus.invalid": "bogus"} {
		_, text, code := call("run", filepath.Join(dir, "small.yaml"), "--out", filepath.Join(dir, "x"),
			"--cluster", url)
		if code != failed || !strings.Contains(text, "cannot connect to "+url) || !strings.Contains(text, words) {
			t.Errorf("%s: exit %d, %s", url, code, text)
		}
	}
	for _, args := range [][]string{{"run", filepath.Join(dir, "small.yaml"), "--out", filepath.Join(dir, "x"),
		"--cluster", "https://127.0.0.1:1"}, {"work", "https://127.0.0.1:1"}} {
		if _, text, code := call(args...); code != failed || !strings.Contains(text,
			"https://127.0.0.1:1 is not the URL of a NATS server; give nats://HOST:PORT") {
			t.Errorf("%v: exit %d, %s", args, code, text)
		}
	}
}

// A folder of the meeting with other files is an error and stays unchanged.
func TestLaunchLeavesOtherFolders(t *testing.T) {
	dir := setup(t)
	mine := filepath.Join(dir, "mine")
	for _, name := range []string{"job-certs", "photos"} {
		filetest.Folder(t, mine, name)
	}
	_, text, code := call("launch", filepath.Join(dir, "small.yaml"), "--out", filepath.Join(dir, "x"), "--rank", "0",
		"--tasks", "2", "--meet", mine)
	list, err := os.ReadDir(mine)
	if code != failed || !strings.Contains(text, "holds photos") || err != nil || len(list) != 2 {
		t.Errorf("exit %d, %s; %v, %v", code, text, list, err)
	}
}
