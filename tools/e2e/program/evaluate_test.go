package program

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/methods/fromfile"
	"promptfed/federation/methodtest"
	"promptfed/runtime/graph"
)

// Two evaluations of one file at the same time, with different numbers of workers and with a variable of the
// environment that would change the protocol, print the same bytes and nothing else, and leave no file but features.
// The file of PromptFL is PromptFL.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cache, temporary := filepath.Join(dir, "cache"), filepath.Join(dir, "tmp")
	for _, name := range []string{"promptfl", "kgcoop"} {
		content, err := methodtest.ONNXFiles[name]()
		if err != nil {
			t.Fatal(err)
		}
		save(t, dir, name+".onnx", content)
	}
	save(t, temporary, "other", nil)
	evaluate := func(file, workers string, env ...string) string {
		out, said, code := callWith(dir, append(env, "TMPDIR="+temporary, "PROMPTFED_RUNTIME_CACHE="+cache), "evaluate",
			"--method", file, "--budget", "30s", "--json", "--set", "runtime.workers="+workers)
		if code != done || said != "" || strings.Count(out, "\n") != 1 {
			t.Errorf("exit %d: %s%s", code, out, said)
		}
		return out
	}
	other := make(chan string)
	go func() { other <- evaluate("kgcoop.onnx", "1", "PROMPTFED_TRAIN_ROUNDS=1") }()
	first := evaluate("kgcoop.onnx", "2")
	if second := <-other; second != first {
		t.Errorf("another number of workers:\n%s%s", first, second)
	}
	before := filesIn(t, dir)
	plain := evaluate("promptfl.onnx", "2")
	if after := filesIn(t, dir); after != before || strings.Contains(after, "tmp/other\n") == strings.Contains(after,
		"runs") {
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

// filesIn lists the files below a folder.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			list.WriteString(path + "\n")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return list.String()
}

// What evaluate refuses is one line and exit code 2: files that are no method or too large for the protocol, and every
// change of the protocol.
func TestEvaluateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content, err := methodtest.ONNXFiles["promptfl"]()
	if err != nil {
		t.Fatal(err)
	}
	save(t, dir, "good.onnx", content)
	save(t, dir, "cut.onnx", content[:len(content)/2])
	save(t, dir, "text.onnx", []byte("no method"))
	save(t, dir, "large.onnx", bytes.Repeat([]byte{0}, 1<<20+1))
	save(t, dir, "outer.onnx", outerProducts(t))
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
		of, all := z.Mean(1), z.Mean(1)
		for range 4 {
			all = all.Unsqueeze(0).Mul(of.Reshape(append([]int{-1}, slices.Repeat([]int{1}, all.Rank())...)...))
		}
		return []graph.Output{{Name: "logits", Node: z}, {Name: "loss", Node: all.Mean()}}
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}
