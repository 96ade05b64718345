package trackers_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/trackers"
	"promptfed/tools/lab/trackers/numbers"
	"promptfed/tools/lab/trackers/tensorboard"
)

// everything is a round with every metric, each with a distinct value; completed adds the values of missing metrics.
const everything = `{"format":2,"round":0,"loss":1.0625,"tested":true,"view":"global","lr":0.5,` +
	`"accuracy":0.51,"accuracy_std":0.11,"accuracy_weighted":0.52,"f1":0.53,"worst":0.31,"worst10":0.32,` +
	`"own_classes":0.71,"ece":0.12,"per_client":[0.5,0.52],"per_domain":{"Art":0.54},"domain_mean":0.55,` +
	`"domain_std":0.13,"accuracy_global":0.51,"accuracy_personal":0.61,"evaluations":{` +
	`"global":{"accuracy":0.51,"accuracy_std":0.11,"accuracy_weighted":0.52,"f1":0.53,"worst":0.31,"worst10":0.32,` +
	`"own_classes":0.71,"ece":0.12,"per_client":[0.5,0.52],"per_domain":{"Art":0.54},"domain_mean":0.55,` +
	`"domain_std":0.13},"personal":{"accuracy":0.61,"per_client":[0.6,0.62]}},` +
	`"sets":{"dtd":{"accuracy":0.41,"global":0.41,"examples":4,"evaluations":{"global":{"accuracy":0.41}}}},` +
	`"validation":{"global":{"accuracy":0.42,"accuracy_std":0,"per_client":[0.42]},"examples":[4]},` +
	`"base_to_new":{"global":{"local":0.43,"base":0.44,"new":0.45,"hm":0.46,"hm3":0.47}},` +
	`"new_clients":{"10":{"accuracy":0.48,"examples":4,"evaluations":{"global":{"accuracy":0.48}}}},` +
	`"attack":{"clients":[1],"honest_global":0.49,"success_global":0.14},"notes":{"epsilon":2.5},"clients":[0,1],` +
	`"bytes_up":1000,"bytes_down":500,"parameters_up":200,"parameters_down":100,"seconds":7,` +
	`"simulated":{"seconds":9}}`

// computed are the quantities that records do not contain: sums, means over sets, and searches.
var computed = []string{metrics.SetMean, metrics.Bytes, metrics.TotalBytes, metrics.TotalParameters, metrics.RoundsTo,
	metrics.BytesTo, metrics.ParametersTo, metrics.SimulatedTo}

// completed reads the round, adds a value for each metric of a test that the text above lacks, and encodes it.
func completed(t *testing.T, r *record.Record) []byte {
	t.Helper()
	goldentest.NoError(t, json.Unmarshal([]byte(everything), r))
	for i, d := range metrics.Definitions() {
		if _, ok := r.Evaluation.Value(d.Name); !ok && d.Value != nil {
			r.Evaluation.Values[d.Name] = .801 + .001*float64(i)
			r.Evaluations.Global.Values[d.Name] = r.Evaluation.Values[d.Name]
		}
	}
	text := goldentest.JSON(t, r)
	return text
}

// TestOneList: every list of metrics has all quantities: cards, tables (with every column), the CSV file and
// report.json, the curves of the page, TensorBoard, and the numbers for MLflow, CSV and Parquet tables. The values
// equal the values of the round above.
func TestOneList(t *testing.T) {
	var r record.Record
	everything := completed(t, &r)
	dir := filepath.Join(t.TempDir(), "one")
	conf := "name: one\nmethod: promptfl\nseed: 3\ntrain: {rounds: 1}\neval: {target: 50}\n"
	for name, text := range map[string]string{"config.yaml": conf, "rounds.jsonl": string(everything) + "\n",
		"summary.json": `{"format":2,"name":"one","rounds":1}`} {
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	store := t.TempDir()
	l, err := trackers.Open([]string{trackers.TensorBoard, trackers.MLflow + store},
		trackers.Run{Dir: dir, Name: "one"}, func(s string) { t.Error(s) })
	goldentest.NoError(t, err)
	l.Round(r)
	goldentest.NoError(t, l.Close(nil))
	made, err := report.New(t.Context(), []string{dir}, dir, report.Standard())
	goldentest.NoError(t, err)
	if _, err := made.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(made.Notes) > 0 {
		t.Fatal(made.Notes)
	}
	run := made.Groups[0].Runs[0]
	sent := tracked(t, store)
	listed, err := numbers.Parse(everything)
	goldentest.NoError(t, err)
	events, page := read(t, dir, filepath.Join(trackers.TensorBoard, tensorboard.FileName)), read(t, dir, report.Page)
	shown := regexp.MustCompile(`"metrics":(\[[^]]*\])`).FindStringSubmatch(page)
	var export struct {
		Groups []struct{ Metrics map[string]any }
	}
	goldentest.NoError(t, json.Unmarshal([]byte(read(t, dir, "report.json")), &export))
	cells, err := csv.NewReader(strings.NewReader(read(t, dir, "tables.csv"))).ReadAll()
	goldentest.NoError(t, err)
	column := slices.Index(cells[0], "metric")
	arguments := map[string]string{metrics.Domain: "Art", metrics.Set: "dtd", metrics.New: "10",
		metrics.Note: "epsilon", metrics.RoundsTo: "50", metrics.BytesTo: "50",
		metrics.ParametersTo: "50", metrics.SimulatedTo: "50"}
	values := map[float64]string{}
	for _, q := range metrics.Definitions() {
		name := q.Name
		if q.Argument != "" {
			name += ":" + arguments[q.Name]
		}
		m, err := results.ParseMetric(name)
		goldentest.NoError(t, err)
		v, ok := m.Value(run)
		if !ok {
			t.Errorf("%s has no value: it has no reader, or the round above lacks it", name)
		}
		perRound := q.Window != metrics.First
		if other := values[v]; perRound && other != "" && q.Name != metrics.SetMean && q.Name != metrics.TotalBytes {
			t.Errorf("%s and %s have one value, %v: choose others", name, other, v)
		}
		values[v] = name
		for _, asked := range []string{name, name + "@last5", "global/" + name} {
			_, err := metrics.ParseName(asked)
			if card := cardTakes(t, asked); (err == nil) != (card == nil) {
				t.Errorf("%s is read with %v, and in a card with %v", asked, err, card)
			}
		}
		if _, ok := export.Groups[0].Metrics[name]; !ok && q.Name != metrics.Accuracy {
			t.Errorf("report.json lacks %s", name)
		}
		if q.Name != metrics.Domain && q.Name != metrics.Accuracy && !slices.ContainsFunc(cells[1:],
			func(line []string) bool { return line[column] == name }) {
			t.Errorf("tables lack %s", name)
		}
		if q.Argument == "" && !strings.Contains(shown[1], `"name":"`+name+`"`) {
			t.Errorf("curves lack %s: %s", name, shown[1])
		}
		if perRound && !strings.Contains(events, strings.ReplaceAll(name, ":", "/")) {
			t.Errorf("TensorBoard lacks %s", name)
		}
		if slices.Contains(computed, q.Name) {
			continue
		}
		if !slices.ContainsFunc(listed, func(n numbers.Number) bool { return n.Value == v }) {
			t.Errorf("tables of numbers lack %s", name)
		}
		if !slices.Contains(sent, v) {
			t.Errorf("MLflow lacks %s", name)
		}
	}
}

// tracked returns the values in an MLflow folder.
func tracked(t *testing.T, store string) []float64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "*", "*", "metrics"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	var out []float64
	err = filepath.WalkDir(files[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		v, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64) // time, value, step
		out = append(out, v)
		return err
	})
	goldentest.NoError(t, err)
	return out
}

// cardTakes reports whether a card may have the metric.
func cardTakes(t *testing.T, name string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sweep.yaml")
	text := fmt.Sprintf("name: x\nmethod: promptfl\ndata: {set: synthetic}\n"+
		"sweep: {axes: [{name: a, key: train.epochs, values: [1, 2]}]}\ncard: {metric: %q}\n", name)
	filetest.Write(t, path, text)
	_, err := configs.LoadSweep(path, configs.SweepOptions{})
	return err
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	return string(filetest.Read(t, dir, name))
}
