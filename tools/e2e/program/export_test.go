package program

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
)

// An exported classifier gives the predictions of the run. Wrong usage is exit code 2 and leaves no file.
func TestExport(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	run, out := filepath.Join(dir, "run"), filepath.Join(dir, "classifier.onnx")
	mustRun(t, "run", filepath.Join(dir, "small.yaml"), "--out", run, "--set", "train.rounds=1")
	image := filepath.Join(run, "plots", "accuracy.png")
	for _, c := range []struct {
		args []string
		code int
		word string
	}{
		{[]string{"export", run}, 2, "--out FILE.onnx"},
		{[]string{"export", run, "--out", out, "--pixels", "rgb"}, 2, "use one of uint8, float"},
		{[]string{"export", dir, "--out", out}, 2, "run folder"},
		{[]string{"export", run, "--out", out}, 2, "--client K, as in --client 0, or --global"},
		{[]string{"export", run, "--all", "--global", "--out", out}, 2, "leave out --client and --global"},
		{[]string{"export", run, "--all", "--out", dir}, 2, "already holds files"},
		{[]string{"predict", run, "--global"}, 2, "--about or --listen"},
		{[]string{"predict", run, "--global", "--listen", ":0"}, 2, "promptfed export RUN"},
		{[]string{"predict", run, "--global", image}, 1, "fedpha has no global classifier"},
		{[]string{"predict", run, "--global", "--listen", ":0", image}, 2, "in POST requests"},
		{[]string{"predict", run, image}, 2, "--client K"},
		{[]string{"predict", run, "--client", "0", "--top", "0", image}, 2, "1 or more"},
		{[]string{"predict", run, "--client", "0", t.TempDir()}, 2, "no images"},
		{[]string{"export", run, "--client", "4", "--out", out}, 1, "clients 0 to 3"},
		{[]string{"predict", filepath.Join(run, "prompts.safetensors"), image}, 1, "promptfed export"},
	} {
		if _, text, code := call(c.args...); code != c.code || !strings.Contains(text, c.word) ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%v: exit %d: %s", c.args, code, text)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was left")
	}
	all, shared := filepath.Join(dir, "all"), filepath.Join(dir, "shared")
	mustRun(t, "run", filepath.Join(dir, "small.yaml"), "--out", shared, "--set", "train.rounds=1", "--set",
		"method=promptfl", "--set", "participation=1")
	mustRun(t, "export", shared, "--all", "--out", all)
	files, err := filepath.Glob(filepath.Join(all, "*"))
	if err != nil || len(files) != 5 || filepath.Base(files[4]) != "global.onnx" {
		t.Errorf("%v, want four clients and the global one: %v", files, err)
	}
	var written struct {
		Evaluation string
		Client     *int
		Accuracy   float64
		Data       string `json:"data"`
		Digest     string `json:"data_sha256"`
		Classes    []string
	}
	for _, args := range [][]string{{"predict", files[4]}, {"predict", shared, "--global"}} {
		if err := json.Unmarshal([]byte(mustRun(t, append(args, "--about", "--json")...)), &written); err != nil ||
			written.Evaluation != "global" || written.Client != nil || written.Data != "synthetic" ||
			len(written.Digest) != 64 || len(written.Classes) != 4 {
			t.Errorf("%v says %+v: %v", args, written, err)
		}
	}
	for _, form := range []string{"uint8", "float"} {
		mustRun(t, "export", run, "--client", "2", "--out", out, "--pixels", form)
		want := probabilities(t, "predict", run, "--client", "2", "--json", image)
		got := probabilities(t, "predict", out, "--json", image)
		for class, p := range want {
			if d := math.Abs(p - got[class]); !(d < 1e-5) || len(got) != len(want) {
				t.Errorf("%s: %v became %v", form, want, got)
			}
		}
	}
	if said := mustRun(t, "predict", out, "--about"); !strings.Contains(said, "client ") ||
		!strings.Contains(said, "personal") {
		t.Errorf("--about says %s", said)
	}
	rows, err := csv.NewReader(strings.NewReader(mustRun(t, "predict", out, "--csv", filepath.Join(run, "plots"),
		image))).ReadAll()
	pngs, e := filepath.Glob(filepath.Join(run, "plots", "*.png"))
	if err != nil || e != nil || len(rows) != 2+len(pngs) || rows[len(rows)-1][0] != image {
		t.Fatalf("%d rows, want a head, %d images of the folder and one: %v %v", len(rows), len(pngs), err, e)
	}
	broken := filetest.Write(t, filepath.Join(t.TempDir(), "broken.png"), "no image")
	if stdout, stderr, code := call("predict", out, broken, image); code != 1 ||
		!strings.HasPrefix(stdout, image+":") ||
		!strings.Contains(stderr, "1 of 2 images cannot be read: "+broken+" (") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	best, at := 0.0, ""
	for class, p := range probabilities(t, "predict", out, "--json", image) {
		if p > best {
			best, at = p, class
		}
	}
	if last := rows[len(rows)-1]; last[1] != at || rows[0][1] != "class" || len(last) != 2+len(rows[0][2:]) {
		t.Errorf("%v, want class %s", last, at)
	}
	if _, text, code := call("predict", out, "--client", "2", image); code != 2 || !strings.Contains(text,
		"--client needs a run folder") {
		t.Errorf("exit %d: %s", code, text)
	}
}

func probabilities(t *testing.T, args ...string) map[string]float64 {
	t.Helper()
	var p struct{ Probabilities map[string]float64 }
	if err := json.Unmarshal([]byte(mustRun(t, args...)), &p); err != nil || len(p.Probabilities) == 0 {
		t.Fatal(err)
	}
	return p.Probabilities
}
