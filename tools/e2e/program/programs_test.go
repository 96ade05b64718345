package program

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// programsIndex is programs.json as an outside program reads it.
type programsIndex struct {
	Backbones map[string]struct{ Weights string }
	Programs  []struct {
		File, Kind, Backbone string
		Inputs, Outputs      []struct {
			Name, From, Of string
			GradientOf     string `json:"gradient_of"`
		}
		Reads []string
	}
}

// The commands of docs/programs.md work in a checkout. The step that they write, with SGD by hand as in the page's
// Python, gives the losses and the prompt of the trace within 1e-5. The page's Python runs where python3 has its
// packages.
func TestProgramsPage(t *testing.T) {
	t.Parallel()
	root, home := goldentest.Module(t), t.TempDir()
	goldentest.NoError(t, os.Symlink(filepath.Join(root, "configs"), filepath.Join(home, "configs")))
	page := string(read(t, root, "docs/programs.md"))
	commands := regexp.MustCompile(`(?m)^    promptfed (.*)$`).FindAllStringSubmatch(page, -1)
	if len(commands) != 5 {
		t.Fatalf("docs/programs.md shows %d commands", len(commands))
	}
	for _, c := range commands {
		if strings.HasPrefix(c[1], "programs") {
			os.RemoveAll(filepath.Join(home, "graphs"))
		}
		if out, text, code := callIn(home, strings.Fields(c[1])...); code != 0 {
			t.Fatalf("%s: %s%s", c[1], out, text)
		}
	}

	var index programsIndex
	goldentest.ReadJSON(t, filepath.Join(home, "graphs", "programs.json"), &index)
	numbers := orttest.Golden(t, filepath.Join(home, "numbers", "trace.safetensors"))
	kinds := ""
	for _, p := range index.Programs {
		kinds += p.Kind + " "
		if text := string(read(t, home, "graphs", p.File)); strings.Contains(text, "com.microsoft") {
			t.Errorf("%s has operators that are not ONNX's", p.File)
		}
		if p.Kind != "step" {
			continue
		}
		model, err := onnx.Unmarshal(read(t, home, "graphs", p.File))
		goldentest.NoError(t, err)
		session, err := ort.NewSession(model, ort.Options{WeightsDir: index.Backbones[p.Backbone].Weights})
		goldentest.NoError(t, err)
		defer session.Close()
		prompt, momentum := numbers["init/ctx"].Clone(), (*tensor.Tensor)(nil)
		for k := range 10 {
			at := fmt.Sprintf("r0/c0/s%d/", k)
			in := tensor.Map{}
			for _, v := range p.Inputs {
				if in[v.Name] = numbers[at+v.Of]; v.From == "param" {
					in[v.Name] = prompt
				}
			}
			out, err := session.Run(context.Background(), in)
			goldentest.NoError(t, err)
			if d := math.Abs(float64(out["loss"].Data[0] - numbers[at+"loss"].Data[0])); !(d < 1e-5) {
				t.Errorf("step %d: the loss differs by %v", k, d)
			}
			gradient := out["grad/param/ctx"].Clone()
			gradient.Axpy(5e-4, prompt) // train.weight_decay
			if momentum != nil {
				gradient.Axpy(0.9, momentum)
			}
			momentum = gradient
			prompt = prompt.Clone()
			prompt.Axpy(-0.05, momentum) // train.lr
		}
		if d := furthest(prompt, numbers["r0/c0/s9/after/ctx"]); !(d < 1e-5) {
			t.Errorf("the prompt differs by %v after ten steps", d)
		}
	}
	if kinds != "encoder texts step scores fixed " || len(index.Programs[3].Reads) != 1 ||
		index.Programs[3].Reads[0] != index.Programs[4].File {
		t.Errorf("kinds %s, %+v", kinds, index.Programs)
	}

	_, lines, _ := strings.Cut(page, "```python\n")
	lines, _, _ = strings.Cut(lines, "```")
	if exec.Command("python3", "-c", "import numpy, onnxruntime, safetensors").Run() != nil {
		t.Log("the Python of the page is not run: no Python with onnxruntime and safetensors")
		return
	}
	c := exec.Command("python3", "-c", lines)
	c.Dir = home
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func furthest(a, b *tensor.Tensor) (d float64) {
	for i, v := range a.Data {
		d = max(d, math.Abs(float64(v-b.Data[i])))
	}
	return d
}

// A run computes with the files of a folder, also with one that somebody changed: its results are those of a run
// without it up to rounding, and its provenance has the digest of the files. A folder of another experiment, a file
// with other inputs and steps of several clients are refused in one line.
func TestRunWithPrograms(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	config, graphs := filepath.Join(dir, "small.yaml"), filepath.Join(dir, "graphs")
	text := strings.ReplaceAll(string(read(t, config)), "local_tokens: [4, 6]", "local_tokens: [4]") // one step graph
	filetest.Write(t, config, text)
	mustRun(t, "programs", config, "--out", graphs)
	if text := mustRun(t, "inspect", graphs); !strings.Contains(text, "step.onnx (step)") {
		t.Error(text)
	}
	mustRun(t, "run", config, "--rounds", "2", "--out", filepath.Join(dir, "plain"))
	with := func(name string, more ...string) (string, int) {
		_, text, code := call(append([]string{"run", config, "--rounds", "2", "--programs", graphs, "--out",
			filepath.Join(dir, name)}, more...)...)
		return text, code
	}
	if text, code := with("files"); code != 0 {
		t.Fatal(text)
	}
	prompts := func(name string) tensor.Map {
		return orttest.Golden(t, filepath.Join(dir, name, "prompts.safetensors"))
	}
	want, got := prompts("plain"), prompts("files")
	for name, v := range want {
		if d := furthest(v, got[name]); !(d < 1e-5) {
			t.Errorf("%s differs by %v", name, d)
		}
	}

	found, err := filepath.Glob(filepath.Join(graphs, "*", "step*.onnx"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	file := found[0]
	whole := read(t, file)
	change := func(do func(m *onnx.ModelProto)) {
		m, err := onnx.Unmarshal(whole)
		goldentest.NoError(t, err)
		do(m)
		b, err := onnx.Marshal(m)
		goldentest.NoError(t, err)
		filetest.Write(t, file, b)
	}
	change(func(m *onnx.ModelProto) { // a loss of twice its size shows that the file is used
		m.Graph.Output[0].Name = "loss"
		for _, n := range m.Graph.Node {
			for i, o := range n.Output {
				if o == "loss" {
					n.Output[i] = "once"
				}
			}
		}
		m.Graph.Node = append(m.Graph.Node, &onnx.NodeProto{OpType: "Add", Input: []string{"once", "once"},
			Output: []string{"loss"}})
	})
	if text, code := with("twice"); code != 0 {
		t.Fatal(text)
	}
	if text, code := with("files", "--resume"); code == 0 || !strings.Contains(text, "runtime.programs") {
		t.Errorf("a run goes on with other files: exit %d, %s", code, text)
	}
	loss := func(name string) float64 {
		var r struct{ Loss float64 }
		line, _, _ := strings.Cut(string(read(t, dir, name, "rounds.jsonl")), "\n")
		goldentest.NoError(t, json.Unmarshal([]byte(line), &r))
		return r.Loss
	}
	if a, b := loss("files"), loss("twice"); math.Abs(b-2*a) > 1e-6*a {
		t.Errorf("losses %v and %v", a, b)
	}
	digest := func(name string) string {
		var p struct {
			Calls []struct{ Numerics struct{ Programs string } }
		}
		goldentest.ReadJSON(t, filepath.Join(dir, name, "provenance.json"), &p)
		return p.Calls[0].Numerics.Programs
	}
	if digest("plain") != "" || len(digest("files")) != 64 || digest("files") == digest("twice") {
		t.Errorf("digests %q, %q, %q", digest("plain"), digest("files"), digest("twice"))
	}

	change(func(m *onnx.ModelProto) { m.Graph.Input[0].Name = "other" })
	for _, c := range []struct {
		more []string
		says string
	}{
		{nil, "its inputs are"},
		{[]string{"--set", "options.ratio=0.3"}, "it was written for another experiment"},
		{[]string{"--set", "runtime.batch_clients=2"}, "runtime.batch_clients"},
		{[]string{"--set", "runtime.programs=none"}, "runtime.programs"},
	} {
		if text, code := with("refused", append(c.more, "--force")...); code == 0 || !strings.Contains(text, c.says) {
			t.Errorf("%v: exit %d, %s", c.more, code, text)
		}
	}
}
