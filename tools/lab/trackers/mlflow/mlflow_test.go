package mlflow

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

var (
	ctx = context.Background()
	at  = time.UnixMilli(1_700_000_000_123)
	one = Run{Experiment: "lab", Name: "first", Start: at, Params: map[string]string{"train.lr": "0.1"},
		Tags: map[string]string{"mlflow.runName": "first"}}
)

// The layout equals the layout of MLflow 3.17's own client: lines "milliseconds value step" in metrics/KEY, status 3
// for finished, source type 4 for a local program.
func TestFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "mlruns")
	s, err := Open(root)
	goldentest.NoError(t, err)
	id, err := s.Begin(ctx, "", one)
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) {
		t.Fatal(id, err)
	}
	for step, v := range []float64{0.5, 0.75} {
		goldentest.NoError(t, s.Log(ctx, id, []Metric{{"evaluations/global/accuracy", v, step, at.UnixMilli()}}))
	}
	goldentest.NoError(t, s.End(ctx, id, Finished, at.Add(time.Second)))
	again, err := s.Begin(ctx, id, one)
	if err != nil || again != id {
		t.Errorf("went on with %q: %v", again, err)
	}
	goldentest.NoError(t, s.End(ctx, id, Killed, at.Add(time.Second)))
	other, err := s.Begin(ctx, strings.Repeat("0", 32), one)
	if err != nil || other == id || len(other) != 32 {
		t.Errorf("a run that is not there became %q: %v", other, err)
	}
	runs, err := filepath.Glob(filepath.Join(root, "*", id))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	for path, want := range map[string]string{
		"metrics/evaluations/global/accuracy": "1700000000123 0.5 0\n1700000000123 0.75 1\n",
		"params/train.lr":                     "0.1", "tags/mlflow.runName": "first"} {
		if b, err := os.ReadFile(filepath.Join(runs[0], path)); err != nil || string(b) != want {
			t.Errorf("%s: %q %v, want %q", path, b, err, want)
		}
	}
	meta := func(dir string) (m map[string]any) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "meta.yaml"))
		if err == nil {
			err = yaml.Unmarshal(b, &m)
		}
		goldentest.NoError(t, err)
		return m
	}
	run, experiment := meta(runs[0]), meta(filepath.Dir(runs[0]))
	for key, want := range map[string]any{"status": 5, "start_time": 1700000000123, "end_time": 1700000001123,
		"run_id": id, "run_name": "first", "lifecycle_stage": "active", "source_type": 4,
		"experiment_id": experiment["experiment_id"]} {
		if fmt.Sprint(run[key]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", key, run[key], want)
		}
	}
	if _, ok := run["experiment_id"].(string); !ok || experiment["name"] != "lab" ||
		experiment["experiment_id"] != filepath.Base(filepath.Dir(runs[0])) {
		t.Errorf("run %v of %v", run, experiment)
	}
	if meta(filepath.Join(root, "0"))["name"] != "Default" {
		t.Error("no default experiment")
	}
	if list, _ := os.ReadDir(root); len(list) != 2 {
		t.Errorf("two runs of one experiment are in %v", list)
	}
}

// fake is the part of a tracking server that runs need; it rejects the calls that MLflow rejects.
type fake struct {
	mu          sync.Mutex
	experiments map[string]string
	status      map[string]string
	metrics     map[string][]Metric
	params      map[string]string
	user        string
	largest     int
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]string{"error_code": code, "message": "no"})
	}
	if user, word, _ := r.BasicAuth(); user != f.user || word != strings.Repeat("x", len(user)) {
		refuse(http.StatusUnauthorized, "UNAUTHENTICATED")
		return
	}
	var in struct {
		Name, Status string
		RunID        string `json:"run_id"`
		Metrics      []Metric
		Params       []pair
	}
	json.NewDecoder(r.Body).Decode(&in)
	out := map[string]any{}
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/") {
	case "GET experiments/get-by-name":
		id, ok := f.experiments[r.URL.Query().Get("experiment_name")]
		if !ok {
			refuse(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST")
			return
		}
		out["experiment"] = map[string]string{"experiment_id": id}
	case "POST experiments/create":
		f.experiments[in.Name] = fmt.Sprint(len(f.experiments) + 1)
		out["experiment_id"] = f.experiments[in.Name]
	case "POST runs/create":
		id := fmt.Sprint("run", len(f.status))
		f.status[id] = "RUNNING"
		out["run"] = map[string]any{"info": map[string]string{"run_id": id}}
	case "POST runs/log-batch", "POST runs/update":
		if f.status[in.RunID] == "" {
			refuse(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST")
			return
		}
		if in.Status != "" {
			f.status[in.RunID] = in.Status
		}
		if f.largest = max(f.largest, len(in.Metrics)); len(in.Metrics) > 1000 || len(in.Params) > 100 {
			refuse(http.StatusBadRequest, "INVALID_PARAMETER_VALUE")
			return
		}
		f.metrics[in.RunID] = append(f.metrics[in.RunID], in.Metrics...)
		for _, p := range in.Params {
			f.params[p.Key] = p.Value
		}
	default:
		refuse(http.StatusNotFound, "ENDPOINT_NOT_FOUND")
		return
	}
	json.NewEncoder(w).Encode(out)
}

func TestServer(t *testing.T) {
	f := &fake{experiments: map[string]string{}, status: map[string]string{}, metrics: map[string][]Metric{},
		params: map[string]string{}, user: "me"}
	web := httptest.NewServer(f)
	defer web.Close()
	s, err := Open(web.URL + "/")
	goldentest.NoError(t, err)
	_, err = s.Begin(ctx, "", one)
	goldentest.WantErrorOf(t, "without credentials", err, "UNAUTHENTICATED: no")
	t.Setenv("MLFLOW_TRACKING_USERNAME", "me")
	t.Setenv("MLFLOW_TRACKING_PASSWORD", "xx")
	r := one
	r.Params = map[string]string{}
	for i := range 130 {
		r.Params[fmt.Sprint("p", i)] = strings.Repeat("é", 4000)
	}
	id, err := s.Begin(ctx, "", r)
	if err != nil || id != "run0" || len(f.params) != 130 || len(f.params["p0"]) > maxParam {
		t.Fatal(id, err, len(f.params), len(f.params["p0"]))
	}
	many := make([]Metric, 2500)
	for i := range many {
		many[i] = Metric{"loss", float64(i), i, at.UnixMilli()}
	}
	if err := s.Log(ctx, id, many); err != nil || len(f.metrics[id]) != 2500 || f.largest != 1000 ||
		f.metrics[id][1001] != (Metric{"loss", 1001, 1001, 1700000000123}) {
		t.Error(err, len(f.metrics[id]), f.largest)
	}
	if err := s.End(ctx, id, Finished, at); err != nil || f.status[id] != "FINISHED" {
		t.Error(f.status, err)
	}
	if again, err := s.Begin(ctx, id, one); err != nil || again != id || f.status[id] != "RUNNING" {
		t.Error(again, err, f.status)
	}
	if other, err := s.Begin(ctx, "gone", one); err != nil || other != "run1" || len(f.experiments) != 1 {
		t.Error(other, err, f.experiments)
	}
	web.Config.Handler = http.NotFoundHandler()
	if err := s.End(ctx, id, Finished, at); err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
	web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	goldentest.WantError(t, s.End(ctx, id, Finished, at), "of an MLflow server")
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := filetest.Write(t, filepath.Join(dir, "file"), "")
	for uri, word := range map[string]string{"": "needs a folder", file: "is a file", "sqlite:///x.db": "mlflow server",
		"http://me:secret@host": "MLFLOW_TRACKING_USERNAME", "http:": "not a server address",
		"file://host/x": "not a folder"} {
		if _, err := Open(uri); err == nil || !strings.Contains(err.Error(), word) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", uri, err)
		}
	}
	want := folder{filepath.Join(dir, "a b")}
	escaped := "file://" + strings.ReplaceAll(want.root, " ", "%20")
	for _, uri := range []string{want.root, "file:" + want.root, escaped} {
		if s, err := Open(uri); err != nil || s != want || s.URI() != want.root {
			t.Errorf("%s: %v %v", uri, s, err)
		}
	}
	if _, err := os.Stat(want.root); !os.IsNotExist(err) {
		t.Error("Open wrote something")
	}
}

func TestKey(t *testing.T) {
	for name, want := range map[string]string{"train.lr": "train.lr",
		// with the first eight digits of the name's SHA-256, from sha256sum
		"per_domain/art & craft": "per_domain/art _ craft-884eb904",
		"../x":                   "__/x-d6b96a97", "/x": "_/x-b3d1db31", "a//b": "a/_/b-7a9acf33",
		"a/ b": "a/b-f3886e70", "a:b": "a_b-6783a31e", "Ö": "Ö",
		strings.Repeat("x", 300): strings.Repeat("x", 241) + "-0d4e2ca9"} {
		if got := Key(name); got != want || !fs.ValidPath(got) || len(got) > maxKey {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"a&b", "a:b", "a_b", "a_b ", "a/b", "a//b", "a/ b", strings.Repeat("x", 300),
		strings.Repeat("x", 301)} {
		if other, ok := seen[Key(name)]; ok {
			t.Errorf("%q and %q are both %q", name, other, Key(name))
		}
		seen[Key(name)] = name
	}
}
