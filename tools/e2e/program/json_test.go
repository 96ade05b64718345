package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"promptfed/models/hub/hubtest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/results"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/command"
)

// shapes collects the keys of JSON values, with the types of their values.
type shapes map[string]map[string]bool

// add adds a value of a Go type at a path. Keys of maps are data and stand as {}.
func (s shapes) add(path string, v any, t reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	is := fmt.Sprintf("%T", v)
	if t != nil && t.Kind() == reflect.Interface {
		v, is = true, "any"
	}
	switch x := v.(type) {
	case nil:
		is = "null"
	case map[string]any:
		is = ""
		for key, value := range x {
			if t != nil && t.Kind() == reflect.Map {
				s.add(path+".{}", value, t.Elem())
			} else {
				s.add(path+"."+key, value, fieldOf(t, key))
			}
		}
	case []any:
		is = ""
		for _, value := range x {
			var kind reflect.Type
			if t != nil && t.Kind() == reflect.Slice {
				kind = t.Elem()
			}
			s.add(path+"[]", value, kind)
		}
		if len(x) == 0 {
			is = "empty list"
		}
	}
	if is != "" {
		if s[path] == nil {
			s[path] = map[string]bool{}
		}
		s[path][strings.NewReplacer("float64", "number", "bool", "boolean").Replace(is)] = true
	}
}

// fieldOf returns the type of the field with a JSON name; nil if it is unknown.
func fieldOf(t reflect.Type, name string) reflect.Type {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			if f.Tag.Get("shape") == report.JSONFile {
				return reflect.TypeFor[results.JSON]()
			}
			return f.Type
		}
	}
	return nil
}

func (s shapes) text() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(s)) {
		if s[path]["empty list"] && slices.ContainsFunc(slices.Collect(maps.Keys(s)), func(p string) bool {
			return strings.HasPrefix(p, path+"[]")
		}) {
			continue // other values of the key have elements
		}
		types := strings.Join(slices.Sorted(maps.Keys(s[path])), ", ")
		fmt.Fprintf(&b, "  %s: %s\n", strings.TrimPrefix(path, "."), types)
	}
	return b.String()
}

// jsonCalls are calls of every command and form in the order in which they run in one folder, with their exit codes.
var jsonCalls = []struct {
	form, args string
	code       int
}{
	{"pull", "ORG/NAME", done},
	{"convert", "CHECKPOINT --out b2", done},
	{"bundle", "EXPORTED --out b3", done},
	{"inspect", "bundle --provider cpu --tensors", done},
	{"inspect", "bundle/text.onnx", done},
	{"inspect --provider alone", "--provider cpu", done},
	{"check", "bundle", done},
	{"doctor", "--data MINI", done},
	{"list methods", "", done},
	{"list methods NAME", "fedpha", done},
	{"list methods --bytes", "promptfl --bytes", done},
	{"list wrappers", "", done},
	{"list wrappers NAME", "dp", done},
	{"list backbones", "", done},
	{"list backbones NAME", "tiny-vit-b32", done},
	{"list datasets", "", done},
	{"list datasets NAME", "pacs", done},
	{"list partitions", "", done},
	{"list partitions NAME", "dirichlet", done},
	{"partition", "small.yaml", done},
	{"partition a table of sizes", "counts.yaml", failed},
	{"features", "small.yaml", done},
	{"import", "COOP --out imported.yaml", done},
	{"init", "images --out init.yaml", done},
	{"pretrain", "pretrain.yaml", done},
	{"grad", "bundle/text.onnx --of text --wrt embeddings --out bundle/grad.onnx", done},
	{"terms", "small.yaml --rounds 1", done},
	{"trace", "small.yaml --rounds 1 --out trace", done},
	{"programs", "small.yaml --out graphs", done},
	{"inspect a folder of programs", "graphs", done},
	{"evaluate", "--method promptfl.onnx --budget 30s", done}, // that of evaluatePromptFL
	{"bench", "--quick --backbone bundle --class-lists cifar10 --threads 1", done},
	{"run", "small.yaml --seeds 1,2 --out run --set train.rounds=2", done},
	{"sweep", "bad.yaml --smoke --out sweep", failed},
	{"launch", "small.yaml --rank 0 --tasks 1 --out launched --set train.rounds=1", done},
	{"report", "run --out report", done},
	{"predict", "run/seed-1 --client 0 images/cat/0.png images/cat/1.png", done},
	{"export", "run/seed-1 --all --out classifiers", done},
	{"export", "run/seed-1 --client 0 --out classifier.onnx", done},
	{"predict --about", "classifier.onnx --about", done},
	{"runs list", "run sweep", done},
	{"runs compare", "run/seed-1 run/seed-2 sweep", done},
	{"runs diff", "run sweep", done},
	{"runs export", "run --out numbers.csv", done},
	{"runs log", "run --to mlflow:mlruns", done},
	{"runs tag", "run --add best", done},
	{"runs rm", "run", done},
	{"certs", "own --request client-3", done},
	{"status", "URL --tls certs", done},
}

// Every command prints JSON with --json, and nothing else, on standard output. The keys and types of its values are
// those of testdata/json.txt (UPDATE=1 writes it), and of every form that the commands state.
func TestJSON(t *testing.T) {
	t.Parallel()
	f := newFederation(t)
	mini, root := miniature(t), "../../.."
	coop := filepath.Join(root, "tools/lab/dasslimport/testdata", "coop.")
	files := strings.NewReplacer("CHECKPOINT", absolute(t, root, "models/bundle/converted/testdata/huggingface"),
		"EXPORTED", absolute(t, root, "models/bundle/exported/testdata/optimum-sdpa-features"),
		"COOP", absolute(t, coop+"sh")+" "+absolute(t, coop+"yaml"), "MINI", mini, "URL", "https://"+f.address)
	bad := strings.NewReplacer("{name: batch, key: train.batch, values: [4, 6]}",
		"{name: data, points: [{label: drawn}, {label: gone, set: {data: {set: folder, root: gone}, "+
			"partition.kind: iid}}]}",
		"keep: {method: FedPHA, batch: 6}", "keep: {method: FedPHA}")
	filetest.Write(t, filepath.Join(f.dir, "bad.yaml"), bad.Replace(string(read(t, f.at("small.yaml")))+grid))
	filetest.Write(t, filepath.Join(f.dir, "counts.yaml"), "data: {root: "+mini+"}\ncounts:\n  paper: P (V)\n  sets:\n"+
		"    - {label: DTD, set: dtd, classes: 3, train: 10}\n    - {label: Pets, set: oxfordpets, classes: 37}\n")
	filetest.Write(t, filepath.Join(f.dir, "pretrain.yaml"), "name: p\nout: pretrained\nsize: 32\npatch: 16\n"+
		"embed_dim: 8\ntext: {width: 8, layers: 1, heads: 1}\nimage: {width: 8, layers: 1, heads: 1}\nmerges: 300\n"+
		"caption_tokens: 16\n"+
		"train: {steps: 2, batch: 4, warmup: 1}\nsources: [{share: 1, data: {set: synthetic}}]\n")
	for _, class := range []string{"cat", "dog"} {
		for i := range 40 {
			drawImage(t, f.at(filepath.Join("images", class, fmt.Sprintf("%d.png", i))), i, len(class))
		}
	}
	forms := map[string]cli.Shape{}
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		for _, s := range cli.Shapes(c) {
			forms[strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), "promptfed ")+" "+s.When)] = s
		}
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(command.Root())
	hub := hubtest.New(t, "../../../models/bundle/converted/testdata/huggingface")
	env := []string{"HF_ENDPOINT=" + hub.Hub.URL, "HOME=" + f.dir, "XDG_CACHE_HOME=" + f.at("caches")}
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"} {
		env = append(env, name+"=")
	}
	found := map[string]shapes{}
	for _, c := range jsonCalls {
		form, ok := forms[c.form]
		if !ok {
			t.Fatalf("no command states the form %q", c.form)
		}
		line := strings.TrimSuffix(strings.TrimSuffix(c.form, form.When), " ") + " " + files.Replace(c.args) + " --json"
		if c.form == "status" {
			f.serve()
		}
		var stdout, stderr string
		var code int
		if c.form == "evaluate" {
			e, err := evaluatePromptFL()
			goldentest.NoError(t, err)
			stdout, stderr, code = e.stdout, e.stderr, e.code
		} else {
			stdout, stderr, code = callWith(f.dir, env, strings.Fields(line)...)
		}
		lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
		if code != c.code || (len(lines) > 1) != form.Lines {
			t.Errorf("%s: exit %d, want %d, %d lines:\n%s", line, code, c.code, len(lines), stderr)
		}
		if found[c.form] == nil {
			found[c.form] = shapes{}
		}
		for _, text := range lines {
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Errorf("%s: %v: %q", line, err, text)
			}
			found[c.form].add("", v, reflect.TypeOf(form.Value))
		}
	}
	var b strings.Builder
	for _, form := range slices.Sorted(maps.Keys(forms)) {
		if found[form] == nil {
			t.Errorf("%s is not called", form)
		}
		fmt.Fprintf(&b, "%s\n%s", form, found[form].text())
	}
	const golden = "testdata/json.txt"
	if os.Getenv("UPDATE") != "" {
		filetest.Write(t, golden, b.String())
	}
	if d := cmp.Diff(string(read(t, golden)), b.String()); d != "" {
		t.Error(d)
	}
}

func absolute(t *testing.T, path ...string) string {
	t.Helper()
	out, err := filepath.Abs(filepath.Join(path...))
	goldentest.NoError(t, err)
	return out
}

// An error with --json is one line on standard error with the same exit code, and nothing on standard output.
func TestJSONErrors(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"run none.yaml", "sweep none.yaml", "init none", "predict none --client 0 none.png",
		"list methods none", "partition none.yaml", "check none", "check", "pull", "convert none --out x",
		"bundle none --out x",
		"inspect none", "import none --out x", "pretrain none.yaml", "grad none.onnx --of a --wrt b --out x",
		"export none --global --out x", "report none", "runs list none", "runs compare none none",
		"runs diff none none", "runs export none --out x.csv", "runs tag none --add a", "runs rm none",
		"runs log none --to mlflow:x",
		"status https://127.0.0.1:1", "terms none.yaml", "trace none.yaml --out x", "features none.yaml",
		"bench --only x --methods --quick", "certs x --request none",
		"evaluate --method none"} {
		dir := t.TempDir()
		_, plain, want := callIn(dir, strings.Fields(line)...)
		stdout, stderr, code := callIn(dir, strings.Fields(line+" --json")...)
		if stdout != "" || code != want || code == done || stderr != plain || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, without --json %d:\n%s%s%s", line, code, want, stdout, stderr, plain)
		}
	}
}
