package program

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/promptfed/runfolder"
)

// grid turns the small configuration into a sweep of two methods, two batch sizes and two seeds.
const grid = `
sweep:
  seeds: [1, 2]
  axes:
    - name: method
      points:
        - {label: PromptFL, set: {method: promptfl, options: {tokens: 3}}}
        - {label: FedPHA, set: {options.local_tokens: 5}}
    - {name: batch, key: train.batch, values: [4, 6]}
smoke:
  set: {train.rounds: 1}
  keep: {method: FedPHA, batch: 6}
  seeds: [3]
`

// setupSweep is setup with a file grid.yaml with a number of rounds.
func setupSweep(t *testing.T, rounds int) (dir, file string) {
	t.Helper()
	dir = setup(t)
	text := strings.ReplaceAll(string(read(t, dir, "small.yaml")), "rounds: 6", fmt.Sprintf("rounds: %d", rounds))
	file = filepath.Join(dir, "grid.yaml")
	filetest.Write(t, file, text+grid)
	return dir, file
}

// result returns what two runs of the same experiment have in common, byte for byte.
func result(t *testing.T, dir string) string {
	t.Helper()
	var s map[string]any
	goldentest.ReadJSON(t, filepath.Join(dir, record.SummaryFile), &s)
	delete(s, "seconds")
	b := goldentest.JSON(t, s)
	return string(b) + string(read(t, dir, record.PromptsFile)) + string(read(t, dir, "clients.json"))
}

func cells(t *testing.T, dir string) []string {
	t.Helper()
	p, err := configs.ReadPlan(dir)
	goldentest.NoError(t, err)
	var out []string
	for _, c := range p.Cells {
		out = append(out, c.Folder)
	}
	return out
}

// Every cell of a sweep has the result of a run of its configuration, whatever the number of jobs.
func TestSweepEqualsRuns(t *testing.T) {
	t.Parallel()
	dir, file := setupSweep(t, 2)
	one, four := filepath.Join(dir, "one"), filepath.Join(dir, "four")
	mustRun(t, "sweep", file, "--out", one, "--jobs", "1")
	mustRun(t, "run", file, "--out", four)
	want := []string{"promptfl/4/seed-1", "promptfl/4/seed-2", "promptfl/6/seed-1", "promptfl/6/seed-2",
		"fedpha/4/seed-1", "fedpha/4/seed-2", "fedpha/6/seed-1", "fedpha/6/seed-2"}
	if got := cells(t, one); !slices.Equal(got, want) {
		t.Fatalf("cells %v", got)
	}
	for _, f := range []string{"report.html", "tables.md", "tables.tex", "tables.csv"} {
		read(t, one, f)
	}
	for _, f := range want {
		if a, b := result(t, filepath.Join(one, f)), result(t, filepath.Join(four, f)); a != b {
			at := 0
			for at < min(len(a), len(b)) && a[at] == b[at] {
				at++
			}
			t.Errorf("%s is not the same with one job and with several: %.200q, %.200q", f, a[max(0, at-80):],
				b[max(0, at-80):])
		}
		if !bytes.Equal(read(t, one, f, runfolder.ConfigFile), read(t, four, f, runfolder.ConfigFile)) {
			t.Errorf("%s: %s differs", f, runfolder.ConfigFile)
		}
	}
	for _, c := range []struct {
		folder string
		sets   []string
	}{
		{"promptfl/6/seed-2", []string{"method=promptfl", "options={tokens: 3}", "train.batch=6", "seed=2"}},
		{"fedpha/4/seed-1", []string{"options.local_tokens=5", "train.batch=4", "seed=1"}},
	} {
		alone := filepath.Join(dir, "alone", c.folder)
		args := []string{"run", filepath.Join(dir, "small.yaml"), "--out", alone, "--set", "train.rounds=2"}
		for _, s := range c.sets {
			args = append(args, "--set", s)
		}
		mustRun(t, args...)
		if result(t, alone) != result(t, filepath.Join(one, c.folder)) {
			t.Errorf("%s is not what a run of its configuration gives", c.folder)
		}
	}
}

// The small form is another plan. A folder accepts one plan only, and a finished sweep has nothing left to do.
func TestSweepFolders(t *testing.T) {
	dir, file := setupSweep(t, 1)
	out := filepath.Join(dir, "out")
	mustRun(t, "sweep", file, "--smoke", "--out", out)
	if got := cells(t, out); !slices.Equal(got, []string{"fedpha/6/seed-3"}) {
		t.Fatalf("cells %v", got)
	}
	summary, err := os.Stat(filepath.Join(out, "fedpha/6/seed-3", record.SummaryFile))
	goldentest.NoError(t, err)
	mustRun(t, "sweep", file, "--smoke", "--out", out, "--resume")
	if again, err := os.Stat(filepath.Join(out, "fedpha/6/seed-3", record.SummaryFile)); err != nil ||
		!again.ModTime().Equal(summary.ModTime()) {
		t.Error("a finished cell ran again")
	}
	whole := read(t, out, "fedpha/6/seed-3", record.RoundsFile)
	filetest.Write(t, filepath.Join(out, "fedpha/6/seed-3", record.RoundsFile), string(whole[:len(whole)-1]))
	mustRun(t, "sweep", file, "--smoke", "--out", out, "--resume")
	if again := read(t, out, "fedpha/6/seed-3", record.RoundsFile); !bytes.Equal(again, whole) {
		t.Errorf("a cut round stays cut: %s", again)
	}
	run := filepath.Join(dir, "run")
	mustRun(t, "run", filepath.Join(dir, "small.yaml"), "--out", run, "--set", "train.rounds=1")
	for _, c := range []struct {
		args []string
		code int
		say  []string
	}{
		{[]string{"sweep", file, "--smoke", "--out", out}, usage, []string{"holds a sweep", "--resume"}},
		{[]string{"sweep", file, "--out", out, "--resume"}, usage, []string{"another sweep", "smoke"}},
		{[]string{"sweep", file, "--smoke", "--out", out, "--resume", "--set", "train.lr=0.5"}, usage,
			[]string{"fedpha/6/seed-3", "train.lr is 0.01 there, 0.5 now"}},
		{[]string{"sweep", file, "--out", run}, usage, []string{"single run"}},
		{[]string{"sweep", file, "--keep", "batch"}, usage, []string{"--keep", "axis=label"}},
		{[]string{"sweep", file, "--keep", "batch=8"}, usage, []string{"grid.yaml", "batch", `"8"`, "4, 6"}},
		{[]string{"sweep", file, "--jobs", "-1"}, usage, []string{"--jobs"}},
		{[]string{"sweep", file, "--set", "train.batch=0"}, usage, []string{"axis batch sets", "--keep batch="}},
		{[]string{"sweep", file, "--set", "train.rounds=0"}, usage, []string{"promptfl/4/seed-1", "train.rounds"}},
		{[]string{"sweep", filepath.Join(dir, "none.yaml")}, usage, []string{"none.yaml"}},
		{[]string{"sweep", file, "--out", "/proc/none/sweep"}, failed, []string{"--out"}},
		{[]string{"run", filepath.Join(dir, "small.yaml"), "--smoke"}, usage, []string{"small.yaml",
			"no section smoke"}},
		{[]string{"run", filepath.Join(dir, "small.yaml"), file}, usage, []string{"grid.yaml", "one sweep"}},
	} {
		_, text, code := call(c.args...)
		if code != c.code {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, text)
		}
		for _, s := range c.say {
			if !strings.Contains(text, s) {
				t.Errorf("%v: %q does not say %q", c.args, text, s)
			}
		}
	}
}

// --resume runs new cells, and failed ones whose points were corrected. Finished cells stay, and refuse changes.
func TestSweepRepair(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "grid.yaml"), filepath.Join(dir, "out")
	grid := func(points string) {
		filetest.Write(t, file, "backbones: [tiny-vit-b32]\ndata: {set: synthetic, generator: {classes: "+
			"[circle, star], domains: [photo], train: 2, test: 2}}\npartition: {clients: 1}\ntrain: {rounds: 3}\n"+
			"sweep: {axes: "+
			"[{name: run, points: ["+points+"]}]}\n")
	}
	call := func(want int, words string, args ...string) {
		t.Helper()
		if _, text, code := call(append([]string{"sweep", file, "--out", out}, args...)...); code != want ||
			!strings.Contains(text, words) {
			t.Errorf("exit code %d, want %d: %s", code, want, text)
		}
	}
	const good, bad = "{label: good, set: {options.tokens: 4}}", "{label: bad, set: {options.tokens: 2, train.lr: "
	grid(good + ", " + bad + "1e30}}")
	call(failed, "1 of 2 cells failed")
	was, err := os.Stat(filepath.Join(out, "good", "seed-1", record.SummaryFile))
	goldentest.NoError(t, err)
	grid("{label: new}, " + good + ", " + bad + "0.1}}")
	call(done, "", "--resume")
	if now, err := os.Stat(filepath.Join(out, "good", "seed-1", record.SummaryFile)); err != nil ||
		!now.ModTime().Equal(was.ModTime()) {
		t.Error("the finished cell ran again")
	}
	if got := cells(t, out); !slices.Equal(got, []string{"new/seed-1", "good/seed-1", "bad/seed-1"}) {
		t.Errorf("cells %v", got)
	}
	grid("{label: new}, " + good + ", " + bad + "0.2}}")
	call(usage, "cell bad/seed-1 has results, and its train.lr is 0.1 there, 0.2 now", "--resume")
	grid("{label: new}, " + good)
	call(usage, "cell bad/seed-1 has results there and is not planned now", "--resume")
	grid("{label: new}, " + good + ", " + bad + "0.1}}, {label: part}")
	call(usage, "without --array", "--array", "0/2")
}

// A sweep with a cell that cannot run, because its prompt is too long for the context, starts nothing. Without this
// cell it runs.
func TestSweepRefusesImpossibleCells(t *testing.T) {
	dir, file := setupSweep(t, 1)
	text := strings.ReplaceAll(string(read(t, file)), "{name: batch, key: train.batch, values: [4, 6]}",
		"{name: tokens, points: [{label: few}, {label: many, set: {method: promptfl, options: {tokens: 90}}}]}")
	text = strings.ReplaceAll(text, "keep: {method: FedPHA, batch: 6}", "keep: {method: FedPHA}")
	filetest.Write(t, filepath.Join(dir, "impossible.yaml"), text)
	file, out := filepath.Join(dir, "impossible.yaml"), filepath.Join(dir, "out")
	_, stderr, code := call("sweep", file, "--smoke", "--out", out)
	if code != failed || !strings.Contains(stderr, "fedpha/many/seed-3: options.tokens: client 0 on ") ||
		!strings.Contains(stderr, "after a prompt of 90 tokens needs") ||
		!strings.Contains(stderr, "nothing was started") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there: %v", err)
	}
	mustRun(t, "sweep", file, "--smoke", "--out", out, "--keep", "tokens=few")
	if _, stderr, code := call("sweep", file, "--smoke", "--out", out, "--keep", "tokens=few", "--force", "--set",
		"options.global_tokens=90"); code != failed || !strings.Contains(stderr, "nothing was started") {
		t.Errorf("with --force: exit code %d, %s", code, stderr)
	}
	read(t, out, "fedpha/few/seed-3", record.SummaryFile)
}

// A failed cell writes a line into its folder and does not stop the others; --resume tries it again.
func TestSweepGoesOnAfterFailures(t *testing.T) {
	dir, file := setupSweep(t, 1)
	images := filepath.Join(dir, "images")
	bad := strings.ReplaceAll(string(read(t, file)), "{name: batch, key: train.batch, values: [4, 6]}",
		"{name: data, points: [{label: drawn}, {label: gone, set: {data: {set: folder, root: "+images+
			"}, partition.kind: iid}}, {label: drawn too}]}")
	file = filepath.Join(dir, "bad.yaml")
	filetest.Write(t, file, strings.ReplaceAll(bad, "keep: {method: FedPHA, batch: 6}", "keep: {method: FedPHA}"))
	out := filepath.Join(dir, "out")
	stdout, stderr, code := call("sweep", file, "--smoke", "--out", out)
	if code != failed || !strings.Contains(stdout, "failed: fedpha/gone/seed-3: ") || !strings.Contains(stderr,
		"1 of 3 cells failed") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, f := range []string{"fedpha/drawn/seed-3", "fedpha/drawn-too/seed-3"} {
		read(t, out, f, record.SummaryFile)
		if _, err := os.Stat(filepath.Join(out, f, runfolder.ErrorFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has an error: %v", f, err)
		}
	}
	read(t, out, "report.html")
	if _, stderr, code := call("sweep", file, "--smoke", "--out", filepath.Join(dir, "none"), "--keep",
		"data=gone"); code != usage || !strings.Contains(stderr, images+" does not exist, and no cell can run") {
		t.Errorf("nothing but failures: exit code %d, %s", code, stderr)
	}
	parts := filepath.Join(dir, "parts")
	for _, part := range []string{"1/2", "0/2"} { // the last part writes the report, although one of the first failed
		call("sweep", file, "--smoke", "--out", parts, "--array", part)
	}
	read(t, parts, "report.html")
	why := string(read(t, out, "fedpha/gone/seed-3", runfolder.ErrorFile))
	if strings.Count(why, "\n") != 1 || !strings.Contains(why, images) {
		t.Errorf("%s: %q", runfolder.ErrorFile, why)
	}
	for _, class := range []string{"cat", "dog"} {
		for i := range 20 {
			filetest.PNG(t, filepath.Join(images, class, fmt.Sprintf("%d.png", i)), image.NewGray(image.Rect(0, 0, 32,
				32)))
		}
	}
	mustRun(t, "sweep", file, "--smoke", "--out", out, "--resume")
	read(t, out, "fedpha/gone/seed-3", record.SummaryFile)
	if _, err := os.Stat(filepath.Join(out, "fedpha/gone/seed-3", runfolder.ErrorFile)); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("the error stays: %v", err)
	}
}

// A sweep that is killed at random moments and resumed until it completes repeats no finished cell and has the result
// of an undisturbed sweep.
func TestSweepKillAndResume(t *testing.T) {
	t.Parallel()
	dir, file := setupSweep(t, 4)
	whole, broken := filepath.Join(dir, "whole"), filepath.Join(dir, "broken")
	mustRun(t, "sweep", file, "--out", whole)
	folders := cells(t, whole)
	ready := func() (list []string) {
		for _, f := range folders {
			if _, err := os.Stat(filepath.Join(broken, f, record.SummaryFile)); err == nil {
				list = append(list, f)
			}
		}
		return list
	}
	rounds := func() (n int) {
		for _, f := range folders {
			n += committed(filepath.Join(broken, f))
		}
		return n
	}
	stamps := map[string]time.Time{}
	untils := []int{0, 1, 5, 11, 18, 25, 28} // of 32 rounds
	for kills := 0; kills < len(untils); kills++ {
		until := untils[kills]
		p := start(t, "sweep", file, "--out", broken, "--resume", "--jobs", "2")
		busytest.Until(t, "rounds", func() bool { return p.Ended() || rounds() >= until })
		if !p.killed() { // it was faster than this test, and begins anew
			if p.ends(t); t.Failed() {
				return
			}
			os.RemoveAll(broken)
			clear(stamps)
			kills = -1
			continue
		}
		for _, f := range ready() {
			st, err := os.Stat(filepath.Join(broken, f, record.SummaryFile))
			goldentest.NoError(t, err)
			if before, ok := stamps[f]; ok && !before.Equal(st.ModTime()) {
				t.Errorf("%s was done and ran again", f)
			}
			stamps[f] = st.ModTime()
		}
	}
	mustRun(t, "sweep", file, "--out", broken, "--resume")
	if len(stamps) == 0 {
		t.Error("no cell was done before the last call")
	}
	for _, f := range folders {
		if result(t, filepath.Join(broken, f)) != result(t, filepath.Join(whole, f)) {
			t.Errorf("after %d kills %s differs", len(untils), f)
		}
	}
	t.Logf("%d cells done before the last call", len(stamps))
}

// A limit on file sizes stands in for a full disk: the sweep stops with the name of the file, does not run the other
// cells, and continues when there is room.
func TestSweepOnFullDisk(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh to set a limit with")
	}
	dir, file := setupSweep(t, 1)
	out := filepath.Join(dir, "out")
	mustRun(t, "features", file, "--set", "backbones=[tiny-vit-b16]")
	args := []string{"sweep", file, "--out", out, "--keep", "method=FedPHA", "--set", "backbones=[tiny-vit-b16]"}
	c := exec.Command("sh", append([]string{"-c", `ulimit -f 16; exec "$0" "$@" --jobs 1`, programs.Promptfed},
		args...)...)
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != failed {
		t.Fatalf("%v: %s", err, text)
	}
	goldentest.Contains(t, string(text), "cell fedpha/4/seed-1: ", "cannot write", "free some space", "--resume")
	for _, f := range cells(t, out)[1:] {
		if _, err := os.Stat(filepath.Join(out, f)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was begun: %v", f, err)
		}
	}
	mustRun(t, append(args, "--resume")...)
}

// An interrupt ends the sweep with one line that contains the command to continue.
func TestSweepInterrupted(t *testing.T) {
	dir, file := setupSweep(t, 4000)
	out := filepath.Join(dir, "out")
	p := start(t, "sweep", file, "--out", out)
	busytest.Until(t, "a round", func() bool {
		list, _ := filepath.Glob(filepath.Join(out, "*", "*", "*", record.RoundsFile))
		return p.Ended() || len(list) > 0
	})
	p.Process.Signal(os.Interrupt)
	<-p.Done
	if p.ProcessState.ExitCode() != failed || !strings.Contains(p.said(), "--resume") {
		t.Errorf("%v: %s", p.Ending, p.said())
	}
	if list, _ := filepath.Glob(filepath.Join(out, "*", "*", "*", runfolder.ErrorFile)); len(list) > 0 {
		t.Errorf("stopped cells count as failed: %v", list)
	}
}
