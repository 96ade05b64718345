package report

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methodtest"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/cli"
)

// A process with the variable evaluateProcess is promptfed evaluate with a protocol of few images and rounds.
const evaluateProcess = "PROMPTFED_TEST_EVALUATE"

func TestMain(m *testing.M) {
	if os.Getenv(evaluateProcess) == "" {
		os.Exit(m.Run())
	}
	protocol = []byte(strings.NewReplacer("train: 16, val: 24", "train: 2, val: 2", "train: 4, val: 6",
		"train: 1, val: 1", "rounds: 12, epochs: 2", "rounds: 2, epochs: 1", "clients: 8", "clients: 4",
		"every: 12", "every: 2").Replace(string(protocol)))
	c := evaluateCommand()
	c.SetArgs(os.Args[1:])
	c.SilenceUsage = true
	if err := c.Execute(); err != nil {
		os.Exit(cli.ExitCode(err))
	}
}

// Two evaluations of one file at the same time, with different numbers of workers and with a variable of the
// environment that would change the protocol, print the same bytes and nothing else, and leave no file but features.
// The file of PromptFL is PromptFL.
func TestEvaluate(t *testing.T) {
	dir := t.TempDir()
	temporary := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporary, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"promptfl", "kgcoop"} {
		content, err := methodtest.ONNXFiles[name]()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	evaluate := func(name, workers string, env ...string) string {
		c := exec.Command(os.Args[0], "--method", filepath.Join(dir, name), "--budget", "30s", "--json", "--set",
			"runtime.workers="+workers)
		c.Env = append(append(os.Environ(), evaluateProcess+"=1", "TMPDIR="+temporary,
			"PROMPTFED_RUNTIME_CACHE="+filepath.Join(dir, "cache")), env...)
		var out, said bytes.Buffer
		c.Stdout, c.Stderr = &out, &said
		if err := c.Run(); err != nil || said.Len() > 0 || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%v: %s%s", err, out.String(), said.String())
		}
		return out.String()
	}
	files := func() (list string) {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			list += path + "\n"
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}

	other := make(chan string)
	go func() { other <- evaluate("kgcoop", "1", "PROMPTFED_TRAIN_ROUNDS=1") }()
	first := evaluate("kgcoop", "2")
	if second := <-other; second != first {
		t.Errorf("another number of workers:\n%s%s", first, second)
	}
	before := files()
	plain := evaluate("promptfl", "2")
	if after := files(); after != before || strings.Contains(after, temporary+"/") {
		t.Errorf("files before\n%safter\n%s", before, after)
	}

	type result struct {
		Digest, Numerics, Method string
		Score                    *float64
		Low                      *float64
		Runs                     []struct {
			Accuracy, PromptFL float64
		}
	}
	var a, b result
	for text, r := range map[string]*result{first: &a, plain: &b} {
		if err := json.Unmarshal([]byte(text), r); err != nil || len(r.Runs) != 4 || r.Score == nil || r.Low != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if a.Digest != b.Digest || a.Numerics != b.Numerics || a.Method == b.Method || *a.Score == 0 || *b.Score != 0 {
		t.Errorf("KgCoOp has\n%sand PromptFL\n%s", first, plain)
	}
	mean := 0.0
	for i, r := range a.Runs {
		mean += (r.Accuracy - r.PromptFL) / 4
		if r.PromptFL != b.Runs[i].PromptFL || b.Runs[i].Accuracy != r.PromptFL {
			t.Errorf("run %d of PromptFL: %v and %v", i, r, b.Runs[i])
		}
	}
	if d := mean - *a.Score; d > 1e-9 || d < -1e-9 {
		t.Errorf("the score is %g, the mean of the differences %g", *a.Score, mean)
	}
}

// Every task of the protocol has clients with training and validation images, and no test image. PromptFL's largest
// step is far below the bound.
func TestProtocol(t *testing.T) {
	s, err := configs.ParseSweep("evaluate.yaml", protocol, configs.SweepOptions{Still: true})
	if err != nil {
		t.Fatal(err)
	}
	machine := experiment.Defaults().Runtime
	machine.Cache = t.TempDir()
	e := evaluator{cells: s.Cells, machine: machine}
	for _, c := range s.Cells {
		b, err := e.open(context.Background(), c, fromfile.Example)
		if err != nil {
			t.Fatal(err)
		}
		for _, sp := range b.Data.Set.Splits() {
			for _, x := range *sp.Examples {
				if part, _, _ := strings.Cut(strings.TrimPrefix(x.ID, "drawn/"), "/"); part != map[string]string{
					"train": "train", "test": "val"}[sp.Name] {
					t.Fatalf("%s: %s has %s", c.Labels["task"], sp.Name, x.ID)
				}
			}
		}
		for i, p := range b.Data.Parts {
			if len(p.Train) < 10 || len(p.Test) < 50 || len(p.Val) > 0 {
				t.Errorf("%s: client %d has %d, %d and %d images", c.Labels["task"], i, len(p.Train), len(p.Val),
					len(p.Test))
			}
		}
		if bytes, err := b.StepBytes(); err != nil || bytes < 1e6 || bytes > maxStepBytes/10 {
			t.Errorf("%s: a step of %g bytes, %v", c.Labels["task"], bytes, err)
		}
	}
}

// An evaluation that takes too long has no score, one line and an exit code of its own. It stops before it has computed
// features.
func TestEvaluateTakesTooLong(t *testing.T) {
	content, err := methodtest.ONNXFiles["promptfl"]()
	file := filepath.Join(t.TempDir(), "m.onnx")
	if err == nil {
		err = os.WriteFile(file, content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	budgets["1ns"] = 1
	defer delete(budgets, "1ns")
	cache := t.TempDir()
	t.Setenv("PROMPTFED_RUNTIME_CACHE", cache)
	c, out := evaluateCommand(), &strings.Builder{}
	c.SetOut(out)
	c.SetArgs([]string{"--method", file, "--budget", "1ns", "--json"})
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.Execute()
	if err == nil || cli.ExitCode(err) != 3 || oneline.Text(err.Error()) != file+" has no score: it takes more "+
		"than 10 times 1ns" || out.Len() > 0 {
		t.Errorf("%v, %s", err, out)
	}
	features, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(features) > 0 {
		t.Errorf("computed %v, %v", features, err)
	}
}

// Work stops once it has taken the processor time, also if it began before.
func TestStopAfter(t *testing.T) {
	stopped := make(chan struct{})
	stopAfter(t.Context(), time.Millisecond, func() { close(stopped) })
	for sum := 0; ; sum++ {
		select {
		case <-stopped:
			return
		default:
		}
	}
}
