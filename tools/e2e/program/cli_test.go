package program

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/tools/e2e/proctest"
	"promptfed/tools/lab/reproduce/published"
)

// Exit codes.
const (
	done   = 0
	failed = 1
	usage  = 2
)

// programs are the programs that tests start, one for all tests.
var programs proctest.Programs

func TestMain(m *testing.M) {
	if os.Getenv("PROMPTFED_TEST_ABSURD") != "" { // in a process of TestAbsurdModels
		os.Exit(m.Run())
	}
	if os.Getenv("PROMPTFED_TEST_REPRODUCE") != "" { // in a process of reproduce
		published.Main()
		return
	}
	os.Setenv("GOGC", "400") // programs take an eighth less processor time
	proctest.Main(m, &programs)
}

// small is a configuration that runs in a second. BUNDLE stands for the small bundle.
const small = `
name: small
method: fedpha
options: {global_tokens: 4, local_tokens: [4, 6], projector: exact-null}
backbones: [BUNDLE]
data: {set: synthetic, shots: 4,
  generator: {classes: [circle, square, star, house], domains: [cartoon, sketch], train: 6, test: 4, size: 32}}
partition: {kind: dirichlet, clients: 4, beta: 1}
train: {rounds: 6, lr: 0.01, epochs: 2, batch: 4}
participation: 0.75
`

// setup converts the small checkpoint, writes the configuration and returns their folder.
func setup(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	mustRun(t, "convert", "../../../models/bundle/converted/testdata/huggingface", "--out",
		filepath.Join(dir, "bundle"))
	text := strings.ReplaceAll(small, "BUNDLE", filepath.Join(dir, "bundle"))
	text += "runtime: {cache: " + filepath.Join(dir, "cache") + "}\n"
	filetest.Write(t, filepath.Join(dir, "small.yaml"), text)
	return dir
}

func call(args ...string) (stdout, stderr string, code int) { return callIn("", args...) }

// callIn is call in a folder.
func callIn(dir string, args ...string) (stdout, stderr string, code int) {
	return callWith(dir, nil, args...)
}

// callWith is callIn with more environment variables.
func callWith(dir string, env []string, args ...string) (stdout, stderr string, code int) {
	c := exec.Command(programs.Promptfed, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	if err := c.Run(); err != nil {
		code = -1
		if x, ok := err.(*exec.ExitError); ok {
			code = x.ExitCode()
		}
	}
	return o.String(), e.String(), code
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, errText, code := call(args...)
	if code != 0 {
		t.Fatalf("promptfed %s: exit %d: %s", strings.Join(args, " "), code, errText)
	}
	return out
}

// smoke runs the small form of a shipped sweep and returns its folder. PROMPTFED_TEST_SMOKE names a checkout of the
// same state in which `make smoke` has run all of them.
func smoke(t *testing.T, path string) (out string) {
	t.Helper()
	if dir := os.Getenv("PROMPTFED_TEST_SMOKE"); dir != "" {
		folder, err := filepath.Rel("../../../configs", strings.TrimSuffix(path, ".yaml"))
		goldentest.NoError(t, err)
		return filepath.Join(dir, "runs", "smoke", folder)
	}
	out = filepath.Join(t.TempDir(), "out")
	mustRun(t, "sweep", path, "--smoke", "--out", out)
	return out
}

// read returns the content of a file.
var read = filetest.Read

func TestWorkersGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	var first []byte
	for _, workers := range []string{"1", "2", "8"} {
		out := filepath.Join(dir, "run"+workers)
		mustRun(t, "run", filepath.Join(dir, "small.yaml"), "--out", out, "--set", "runtime.workers="+workers)
		got := read(t, out, "prompts.safetensors")
		if first == nil {
			first = got
		}
		if !bytes.Equal(first, got) {
			t.Errorf("%s workers give other prompts than one", workers)
		}
	}
}

// A run that is killed at random moments after each of its rounds and resumed ends with the same prompts.
func TestKillAndResume(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	config := filepath.Join(dir, "small.yaml")
	whole, broken := filepath.Join(dir, "whole"), filepath.Join(dir, "broken")
	mustRun(t, "run", config, "--out", whole, "--set", "train.rounds=12")
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	kills := 0
	for {
		before := committed(broken)
		p := start(t, "run", config, "--out", broken, "--set", "train.rounds=12", "--resume")
		busytest.Until(t, "a round", func() bool { return p.Ended() || committed(broken) > before })
		busytest.Delay(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
		if !p.killed() {
			p.ends(t)
			break
		}
		kills++
	}
	if !bytes.Equal(read(t, whole, "prompts.safetensors"), read(t, broken, "prompts.safetensors")) {
		t.Errorf("after %d kills the prompts differ from those of the uninterrupted run", kills)
	}
	if a, b := read(t, whole, "rounds.jsonl"), read(t, broken, "rounds.jsonl"); bytes.Count(a,
		[]byte("\n")) != bytes.Count(b, []byte("\n")) {
		t.Errorf("rounds.jsonl has %d and %d lines", bytes.Count(a, []byte("\n")), bytes.Count(b, []byte("\n")))
	}
	t.Logf("killed %d times", kills)
}

// Resuming with another configuration is an error, and does not change the folder.
func TestResumeWithOtherConfiguration(t *testing.T) {
	dir := setup(t)
	config, out := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "run")
	mustRun(t, "run", config, "--out", out, "--set", "train.rounds=1")
	before := read(t, out, "config.yaml")
	_, text, code := call("run", config, "--out", out, "--resume", "--set", "train.lr=0.5")
	if code == 0 || !strings.Contains(text, "another experiment: train.lr is 0.01 there, 0.5 now;") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if !bytes.Equal(before, read(t, out, "config.yaml")) {
		t.Error("config.yaml is that of the refused run")
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	dir := setup(t)
	config := filepath.Join(dir, "small.yaml")
	done := filepath.Join(dir, "done")
	mustRun(t, "run", config, "--out", done, "--set", "train.rounds=1")
	truncated := filepath.Join(dir, "half.safetensors")
	whole := read(t, "../../../models/bundle/converted/testdata/huggingface/model.safetensors")
	filetest.Write(t, truncated, whole[:len(whole)/2])
	empty, full := filepath.Join(dir, "images"), filepath.Join(dir, "broken")
	filetest.Folder(t, empty, "cat")
	for _, class := range []string{"images/dog", "broken/cat", "broken/dog"} {
		for i := range 10 {
			filetest.Write(t, filepath.Join(dir, class, string(rune('a'+i))+".png"), "no image")
		}
	}
	out := func(n string) string { return filepath.Join(dir, n) }
	for _, c := range []struct {
		what string
		args []string
		code int
		say  []string
	}{
		{"existing run", []string{"run", config, "--out", done}, 2, []string{"--resume"}},
		{"unknown key", []string{"run", config, "--set", "train.speed=3"}, 2, []string{"train.speed", "known here",
			"batch"}},
		{"unknown option", []string{"run", config, "--out", out("1"), "--set", "options.beta=3"}, 2,
			[]string{"options.beta", "ratio"}},
		{"unknown method", []string{"run", config, "--out", out("2"), "--set", "method=fedfoo"}, 2, []string{"fedfoo",
			"promptfed list methods"}},
		{"missing file", []string{"run", out("none.yaml")}, 2, []string{"none.yaml"}},
		{"missing checkpoint", []string{"convert", out("nothing"), "--out", out("3")}, 1, []string{"nothing"}},
		{"truncated checkpoint", []string{"convert", truncated, "--out", out("4")}, 1, []string{"half.safetensors"}},
		{"no such backbone", []string{"run", config, "--out", out("5"), "--set", "backbones=[rn9000]"}, 2,
			[]string{"rn9000"}},
		{"prompt too long", []string{"run", config, "--out", out("6"), "--set", "options.local_tokens=40"}, 2,
			[]string{"circle", "40"}},
		{"too many clients", []string{"run", config, "--out", out("7"), "--set", "partition.clients=40", "--set",
			"partition.kind=pathological"}, 2, []string{"partition.clients"}},
		{"empty class folder", []string{"run", config, "--out", out("8"), "--set", "data.set=folder", "--set",
			"data.root=" + empty}, 2, []string{"cat"}},
		{"corrupt image", []string{"run", config, "--out", out("9"), "--set", "data.set=folder", "--set", "data.root=" +
			full, "--set", "partition.kind=iid", "--set", "partition.clients=2"}, 1, []string{"a.png"}},
		{"missing data", []string{"run", config, "--out", out("10"), "--set", "data.set=folder", "--set", "data.root=" +
			out("gone")}, 2, []string{"gone", "data.root"}},
		{"folder that cannot be written", []string{"run", config, "--out", "/proc/none/run"}, 1, []string{"--out"}},
		{"absent provider", []string{"run", config, "--out", out("11"), "--set", "runtime.provider=cuda"}, 1,
			[]string{"cuda"}},
		{"no command", []string{"fly"}, 2, []string{"fly"}},
		{"no list", []string{"list", "fedpha"}, 2, []string{"promptfed list methods fedpha"}},
		{"gradient of nothing", []string{"grad", out("bundle/text.onnx"), "--of", "text", "--wrt", "image", "--out",
			out("bundle/g.onnx")}, 1, []string{"image", "embeddings"}},
		{"gradient over its model", []string{"grad", out("bundle/text.onnx"), "--of", "text", "--wrt", "embeddings",
			"--out", out("bundle/text.onnx")}, 2, []string{"would overwrite"}},
		{"gradient over weights", []string{"grad", out("bundle/text.onnx"), "--of", "text", "--wrt", "embeddings",
			"--out", out("bundle/model.safetensors")}, 2, []string{"would overwrite"}},
	} {
		_, text, code := call(c.args...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d (%s)", c.what, code, c.code, text)
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "promptfed: ") || strings.Contains(text, "goroutine") {
			t.Errorf("%s: not a one-line error: %s", c.what, text)
		}
		for _, s := range c.say {
			if !strings.Contains(strings.ToLower(last), strings.ToLower(s)) {
				t.Errorf("%s: the error does not say %q: %s", c.what, s, last)
			}
		}
	}
}

func TestMissingLibrary(t *testing.T) {
	dir := setup(t)
	c := exec.Command(programs.Promptfed, "run", filepath.Join(dir, "small.yaml"), "--out", filepath.Join(dir, "run"))
	c.Env = append(os.Environ(), "ONNXRUNTIME_LIB="+filepath.Join(dir, "libnothing.so"))
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "libnothing.so") {
		t.Errorf("error %v: %s", err, out)
	}
}

// The telemetry of ONNX Runtime, which would report the run to a collector, leaves a temporary file when it starts.
func TestNoTelemetry(t *testing.T) {
	dir := setup(t)
	tmp := t.TempDir()
	c := exec.Command(programs.Promptfed, "run", filepath.Join(dir, "small.yaml"), "--out", filepath.Join(dir, "run"),
		"--set", "train.rounds=1")
	c.Env = append(os.Environ(), "TMPDIR="+tmp)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if list, err := os.ReadDir(tmp); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v %v", list, err)
	}
}

func TestTracePredictPartition(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	config := filepath.Join(dir, "small.yaml")
	mustRun(t, "trace", config, "--rounds", "2", "--out", filepath.Join(dir, "trace"))
	tensors := orttest.Golden(t, filepath.Join(dir, "trace", "trace.safetensors"))
	for _, name := range []string{"init/global", "r0/merged/global", "r1/merged/global"} {
		if tensors[name] == nil {
			t.Errorf("the trace lacks %s", name)
		}
	}
	_, errs, code := call("trace", config, "--rounds", "1", "--out", filepath.Join(config, "trace")) // not in a folder
	if code != 1 || strings.Contains(errs, "round 1/1") || !strings.Contains(errs, "mkdir "+config) {
		t.Errorf("exit %d, and says\n%s", code, errs)
	}
	var info map[string]any
	goldentest.ReadJSON(t, filepath.Join(dir, "trace", "trace.json"), &info)
	for _, key := range []string{"config", "classes", "tokens", "hand_tokens", "clients", "steps"} {
		if info[key] == nil {
			t.Errorf("trace.json lacks %s", key)
		}
	}
	run := filepath.Join(dir, "run")
	mustRun(t, "run", config, "--out", run)
	got := mustRun(t, "predict", run, "--client", "1", "--json", filepath.Join(run, "plots", "accuracy.png"))
	var p struct{ Probabilities map[string]float64 }
	if err := json.Unmarshal([]byte(got), &p); err != nil {
		t.Fatal(err, got)
	}
	sum := 0.0
	for _, v := range p.Probabilities {
		sum += v
	}
	if len(p.Probabilities) != 4 || sum < 0.999 || sum > 1.001 {
		t.Errorf("probabilities %v", p.Probabilities)
	}
	for _, f := range []string{"config.yaml", "rounds.jsonl", "summary.json", "data.json", "report.html",
		"plots/accuracy.png", "plots/accuracy.svg"} {
		if len(read(t, run, f)) == 0 {
			t.Errorf("%s is empty", f)
		}
	}
	var parts struct {
		Clients []struct{ Train, Test []int }
		Labels  struct{ Train, Test []int }
	}
	printed, text, code := call("partition", config, "--json")
	if code != 0 || !strings.Contains(text, "data: synthetic, made on the fly: 4 classes") || !strings.Contains(text,
		"data: train 48 images") {
		t.Errorf("partition: exit %d, and says %q", code, text)
	}
	if err := json.Unmarshal([]byte(printed), &parts); err != nil || len(parts.Clients) != 4 ||
		len(parts.Labels.Train) != 48 {
		t.Errorf("partition file: %v, %d clients, %d training labels", err, len(parts.Clients), len(parts.Labels.Train))
	}
}
