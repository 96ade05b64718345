package report

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methodtest"
	"promptfed/tools/promptfed/cli"
)

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
	if err == nil || cli.ExitCode(err) != 3 || cli.OneLine(err) != file+" has no score: it takes more than 10 times "+
		"1ns" || out.Len() > 0 {
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
