package program

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/promptfed/runfolder"
)

// An interrupted run prints the command that continues it. Pasted into a shell, the command works with any names,
// values and variables, and the run ends with the bytes of an uninterrupted run. The same holds for a sweep.
func TestPastedLineGoesOn(t *testing.T) {
	dir := setup(t)
	more := []string{"--set", "options={global_tokens: 4, local_tokens: [4, 6]}", "--set", "train.rounds=40"}
	t.Setenv("PROMPTFED_TRAIN_LR", "0.02")
	whole, broken := filepath.Join(dir, "whole"), filepath.Join(dir, "it's $HOME")
	mustRun(t, append([]string{"run", filepath.Join(dir, "small.yaml"), "--out", whole}, more...)...)
	p := interrupted(t, broken, append([]string{"run", filepath.Join(dir, "small.yaml")}, more...)...)
	line := regexp.MustCompile(`(?m)^promptfed: stopped; to continue: (.*)$`).FindStringSubmatch(p.said())
	if line == nil {
		t.Fatalf("no line to go on in\n%s", p.said())
	}
	shell := exec.Command("sh", "-c", line[1])
	for _, e := range os.Environ() { // another shell
		if !strings.HasPrefix(e, "PROMPTFED_") {
			shell.Env = append(shell.Env, e)
		}
	}
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line[1], err, out)
	}
	if !bytes.Equal(read(t, whole, "prompts.safetensors"), read(t, broken, "prompts.safetensors")) {
		t.Error("the resumed run ends elsewhere")
	}
	var got runfolder.Provenance
	goldentest.ReadJSON(t, filepath.Join(broken, runfolder.ProvenanceFile), &got)
	if len(got.Calls) != 2 || got.Calls[0].Finished || !got.Calls[1].Finished || got.Data == nil ||
		got.Data.Images["train"] != 48 || got.Data.Clients != 4 || len(got.Data.Digest) != 64 ||
		got.Seeds["seed"] != 1 {
		t.Errorf("%+v", got)
	}
}

// interrupted starts a run in a folder and interrupts it after a round. A run that ends before begins anew.
func interrupted(t *testing.T, out string, args ...string) *process {
	t.Helper()
	for {
		p := start(t, append(args, "--out", out)...)
		busytest.Until(t, "a round", func() bool { return p.Ended() || committed(out) > 0 })
		p.Process.Signal(os.Interrupt)
		if <-p.Done; p.Ending != nil {
			return p
		}
		os.RemoveAll(out)
	}
}

// A run may use a folder without a finished round again, and a folder with a run only with --force. Two processes never
// work in the same folder.
func TestFoldersAreUsedAgain(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	config, out := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "run")
	if _, _, code := call("run", config, "--out", out, "--set", "options.local_tokens=40"); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a run that cannot begin leaves a folder")
	}
	filetest.Write(t, filepath.Join(out, ".lock"), "")
	one := []string{"run", config, "--out", out, "--set", "train.rounds=1"}
	mustRun(t, one...)
	first := read(t, out, "prompts.safetensors")
	if _, text, code := call(one...); code != 2 || !strings.Contains(text, "--force to replace it") {
		t.Errorf("exit code %d: %s", code, text)
	}
	mustRun(t, append(one, "--force")...)
	if !bytes.Equal(first, read(t, out, "prompts.safetensors")) {
		t.Error("begun anew, the run ends elsewhere")
	}
	p := start(t, "run", config, "--out", out, "--force", "--set", "train.rounds=1000000")
	p.says(t, "round 1/")
	if _, text, code := call("run", config, "--out", out, "--force"); code != 2 || !strings.Contains(text,
		"another promptfed works in") {
		t.Errorf("two in one folder: exit code %d: %s", code, text)
	}
	p.Process.Kill()
	<-p.Done
}

// --force replaces a sweep as it replaces a run, with the cells of an earlier form.
func TestForceOfASweep(t *testing.T) {
	dir, file := setupSweep(t, 1)
	out := filepath.Join(dir, "sweep")
	mustRun(t, "sweep", file, "--out", out, "--keep", "batch=4", "--seeds", "1-2")
	if _, text, code := call("sweep", file, "--out", out, "--keep", "batch=6"); code != 2 || !strings.Contains(text,
		"--force") {
		t.Errorf("exit code %d: %s", code, text)
	}
	mustRun(t, "sweep", file, "--out", out, "--keep", "batch=6", "--keep", "method=PromptFL", "--seeds", "3", "--force")
	if left, err := filepath.Glob(filepath.Join(out, "*", "*", "seed-*")); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}

// If the command line names another method, the run ignores the options that this method does not have, and prints
// them.
func TestOtherMethodOfAFile(t *testing.T) {
	dir := setup(t)
	_, text, code := call("run", filepath.Join(dir, "small.yaml"), "--out", filepath.Join(dir, "run"), "--set",
		"method=coop", "--set", "train.rounds=1")
	want := "promptfed: note: --set method=coop drops the options of fedpha: global_tokens, local_tokens, " +
		"projector"
	if code != 0 || !strings.Contains(text, want) {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// The program prints its version and commit, and help names the command for completion.
func TestVersionAndCompletion(t *testing.T) {
	// in a clean checkout, the version that Go records contains the commit
	version := regexp.MustCompile(`^promptfed (\S+, commit \S+|\S+-[0-9a-f]{12}\S*)\n$`)
	if out := mustRun(t, "--version"); !version.MatchString(out) || strings.Contains(out, "devel") {
		t.Errorf("%q", out)
	}
	if out := mustRun(t, "--help"); !strings.Contains(out, "\n  completion ") {
		t.Error("help does not name completion")
	}
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, "runs", "one", "seed-1", "config.yaml"), "")
	t.Chdir(dir)
	for want, args := range map[string][]string{
		"\nmethod=fedpha\n":         {"run", "--set", "method="},
		"\ntrain.lr=\n":             {"run", "--set", "train"},
		"\noptions.fedprox.mu=\n":   {"sweep", "--set", "options"},
		"\nwith=fedprox\n":          {"run", "--set", "with="},
		"\ntrain.nesterov=true\n":   {"run", "--set", "train.nesterov="},
		"\nworst10\n":               {"report", "--metric", ""},
		"\npersonal\n":              {"report", "--view", ""},
		"\nruns/one/seed-1\n":       {"report", "runs/"},
		"\npartition.min_size=\n":   {"partition", "--set", ""},
		"\ncareless.share=\n":       {"pretrain", "--set", ""},
		"\ndomain-dirichlet\n":      {"list", "partitions", ""},
		"\n:8\n":                    {"run", ""}, // files with some endings
		"\nyaml\n":                  {"run", ""},
		"\nruntime.provider=auto\n": {"bench", "--set", "runtime.provider="},
	} {
		if out := "\n" + mustRun(t, append([]string{"__complete"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%v: %q is not in\n%s", args, want, out)
		}
	}
}

// A list has one line per element, which fits the terminal. With a name it shows the details.
func TestLists(t *testing.T) {
	t.Setenv("COLUMNS", "60")
	for _, what := range []string{"methods", "wrappers", "datasets", "partitions"} {
		out := mustRun(t, "list", what)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for _, line := range lines {
			if n := len([]rune(line)); n > 60 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		name, _, _ := strings.Cut(lines[0], " ")
		if whole := mustRun(t, "list", what, name); !strings.HasPrefix(whole, name+": ") || strings.Count(whole,
			"\n") < 2 {
			t.Errorf("%q", whole)
		}
	}
}

// inspect finds a backbone by its name, as it finds a bundle by its path.
func TestBackbonesByName(t *testing.T) {
	if out := mustRun(t, "list", "backbones"); !strings.Contains(out, "\ntiny-rn50 ") {
		t.Error(out)
	}
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"list", "backbones", "tiny-rn50"}, {"inspect", "tiny-rn50"}} {
		out := mustRun(t, args...)
		for _, want := range []string{`^.*tiny-rn50: bundle \(openclip\)\n`, `\nname +tiny-rn50 *\n`,
			`\nembedding dimension +128 *\n`} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%v: no %s in\n%s", args, want, out)
			}
		}
	}
	if _, stderr, code := call("inspect", "nothere"); code != failed || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, "no such file") || !strings.Contains(stderr, "tiny-rn50") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
