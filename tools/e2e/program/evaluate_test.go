package program

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methodtest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
)

// evaluatePromptFL evaluates the file of PromptFL on the whole protocol, once for all tests. Its folder has the file
// promptfl.onnx, a cache and an empty folder for temporary files.
var evaluatePromptFL = sync.OnceValues(func() (e evaluated, err error) {
	dir := filepath.Join(programs.Dir, "evaluate")
	temporary, cache := filepath.Join(dir, "tmp"), filepath.Join(dir, "cache")
	content, err := methodtest.ONNXFiles["promptfl"]()
	if err == nil {
		err = os.MkdirAll(temporary, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "promptfl.onnx"), content, 0o644)
	}
	if err != nil {
		return e, err
	}
	e.dir = dir
	e.stdout, e.stderr, e.code = callWith(dir, []string{"TMPDIR=" + temporary, "PROMPTFED_RUNTIME_CACHE=" + cache},
		"evaluate", "--method", "promptfl.onnx", "--budget", "30s", "--json")
	return e, nil
})

// evaluated is what promptfed evaluate says and leaves.
type evaluated struct {
	dir, stdout, stderr string
	code                int
}

// On the whole protocol, the file of PromptFL is PromptFL. One line is printed, and only features are left. The test of
// the command compares methods, processes and numbers of workers on a small protocol.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	e, err := evaluatePromptFL()
	goldentest.NoError(t, err)
	var r struct {
		Score, Low *float64
		Runs       []struct{ Accuracy, PromptFL float64 }
	}
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil || e.code != done || e.stderr != "" ||
		strings.Count(e.stdout, "\n") != 1 {
		t.Fatalf("%v, exit %d: %s%s", err, e.code, e.stdout, e.stderr)
	}
	if len(r.Runs) != 4 || r.Score == nil || *r.Score != 0 || r.Low != nil {
		t.Error(e.stdout)
	}
	for i, pair := range r.Runs {
		if pair.Accuracy != pair.PromptFL || pair.Accuracy == 0 {
			t.Errorf("run %d: %v", i, pair)
		}
	}
	var left []string
	if err := filepath.WalkDir(e.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "cache" {
			return fs.SkipDir
		} else if err == nil && !entry.IsDir() {
			left = append(left, entry.Name())
		}
		return err
	}); err != nil || !slices.Equal(left, []string{"promptfl.onnx"}) {
		t.Errorf("files %v, %v", left, err)
	}
}

// What evaluate refuses is one line and exit code 2: files that are no method or too large for the protocol, and every
// change of the protocol.
func TestEvaluateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content, err := methodtest.ONNXFiles["promptfl"]()
	goldentest.NoError(t, err)
	filetest.Write(t, filepath.Join(dir, "good.onnx"), content)
	filetest.Write(t, filepath.Join(dir, "cut.onnx"), content[:len(content)/2])
	filetest.Write(t, filepath.Join(dir, "text.onnx"), "no method")
	filetest.Write(t, filepath.Join(dir, "large.onnx"), bytes.Repeat([]byte{0}, 1<<20+1))
	filetest.Write(t, filepath.Join(dir, "outer.onnx"), outerProducts(t))
	for args, want := range map[string]string{
		"":                                      "needs --method",
		"--method none.onnx":                    "none.onnx",
		"--method .":                            "directory",
		"--method cut.onnx":                     "cut.onnx has no score: ",
		"--method text.onnx":                    "text.onnx has no score: ",
		"--method large.onnx":                   "at most 1048576 bytes",
		"--method outer.onnx":                   "at most 2 GiB are allowed",
		"--method good.onnx --budget 7m":        "30s, 1m, 5m or 30m",
		"--method good.onnx --set data.seed=2":  "only keys under runtime",
		"--method good.onnx --set eval.sets=[]": "only keys under runtime",
		"good.onnx":                             "takes 0 arguments",
	} {
		out, said, code := callIn(dir, append([]string{"evaluate", "--json"}, strings.Fields(args)...)...)
		if out != "" || code != usage || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: exit %d, want %q: %s%s", args, code, want, out, said)
		}
	}
}

// outerProducts returns PromptFL with a loss that multiplies every five images of a batch.
func outerProducts(t *testing.T) []byte {
	t.Helper()
	meta := fromfile.Metadata{Parameters: []fromfile.Parameter{{Name: "ctx", Owner: "shared", Tokens: 4,
		Tensor: fromfile.Tensor{Shape: []fromfile.Size{{Sym: "T"}, {Sym: "w"}}, Std: 0.02}}}}
	content, err := methodtest.ONNXFile(meta, func(g *graph.Graph) []graph.Output {
		x := g.Input("image", graph.Float, graph.Shape{graph.Sym("B"), graph.Sym("D")})
		z := x.MatMul(g.Input("text/ctx", graph.Float, graph.Shape{graph.Sym("C"), graph.Sym("D")}).Transpose(1, 0))
		means, all := z.Mean(1), z.Mean(1)
		for range 4 {
			all = all.Unsqueeze(0).Mul(means.Reshape(append([]int{-1}, slices.Repeat([]int{1}, all.Rank())...)...))
		}
		return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: all.Mean()}}
	})
	goldentest.NoError(t, err)
	return content
}
