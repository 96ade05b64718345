package numbers

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/tools/lab/results"
)

// A round of rounds.jsonl in which clients 0 and 2 of three answered.
const round = `{"format":2,"round":0,"loss":1.5,"tested":true,"accuracy":0.5,"per_client":[0.25,0.75],"view":` +
	`"global",` +
	`"evaluations":{"global":{"accuracy":0.5,"per_client":[0.25,0.75]}},"answered":[0,2],"unanswered":[1],` +
	`"sets":{"a.b":{"accuracy":1,"per_client":[1,1,1]}},` +
	`"validation":{"global":{"accuracy":0.1,"per_client":[0.1]},"clients":[2],"examples":[7]},` +
	`"terms":[{"name":"cross entropy","value":null,"norm":2}],"cut":[{"client":1,"claimed":9,"counted":3}],` +
	`"clients":[2],"lr":1}`

// Every number of the round, by hand: lists by client have the right clients.
func TestParse(t *testing.T) {
	list, err := Parse([]byte(round), "round")
	goldentest.NoError(t, err)
	got := convert.Slice(list, func(n Number) string { return fmt.Sprint(n.Name("."), " ", n.Client, " ", n.Value) })
	want := []string{"accuracy -1 0.5", "answered 0 1", "answered 2 1", "clients 2 1", "cut.claimed 1 9",
		"cut.counted 1 3", "evaluations.global.accuracy -1 0.5", "evaluations.global.per_client 0 0.25",
		"evaluations.global.per_client 2 0.75", "loss -1 1.5", "lr -1 1", "per_client 0 0.25", "per_client 2 0.75",
		"sets.a%2Eb.accuracy -1 1", "sets.a%2Eb.per_client 0 1", "sets.a%2Eb.per_client 1 1",
		"sets.a%2Eb.per_client 2 1", "terms.cross entropy.norm -1 2", "unanswered 1 1", "validation.clients 2 1",
		"validation.examples 2 7", "validation.global.accuracy -1 0.1", "validation.global.per_client 2 0.1"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Names that differ only in a separator stay different: otherwise one column of a table would hold both numbers.
func TestNames(t *testing.T) {
	list, err := Parse([]byte(`{"per_domain":{"a_b":1,"a.b":2,"a/b":3,"a%2Eb":4}}`))
	goldentest.NoError(t, err)
	for _, separator := range []string{".", "/"} {
		seen := map[string]float64{}
		for _, n := range list {
			name := n.Name(separator)
			if other, ok := seen[name]; ok || strings.Count(name, separator) != 1 {
				t.Errorf("%v and %v are both %s", other, n.Value, name)
			}
			seen[name] = n.Value
		}
	}
}

// Two runs that differ in the learning rate: by hand, the lines of a round of the first, its metrics over rounds, and
// the numbers of its summary that are no metrics. Settings have columns with their types, and the two formats have the
// same lines; in pandas, a number without a client has a missing client instead of 0.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	for run, lr := range map[string]string{"a": "0.5", "b": "1"} {
		at := filepath.Join(dir, run)
		for name, text := range map[string]string{"config.yaml": "name: " + run + "\nmethod: coop\n" +
			"seed: 18446744073709551615\ndata: {set: pacs}\npartition: {clients: 3}\ntrain: {lr: " + lr +
			"}\nextra: " + run + "\n",
			"rounds.jsonl": round + "\n", "summary.json": `{"format":2,"rounds":1,"last":0.5,"best_round":0}`} {
			filetest.Write(t, filepath.Join(at, name), text)
		}
	}
	all, err := results.Load(dir)
	goldentest.NoError(t, err)
	var text, binary bytes.Buffer
	counted, err := Write(&text, CSV, all, dir)
	goldentest.NoError(t, err)
	if n, err := Write(&binary, Parquet, all, dir); err != nil || n != counted {
		t.Fatal(n, counted, err)
	}
	rows, err := csv.NewReader(&text).ReadAll()
	if err != nil || len(rows) != counted+1 {
		t.Fatal(len(rows), counted, err)
	}
	if got := strings.Join(rows[0], ","); got != "run,sweep,method,seed,data.set,partition.kind,partition.clients,"+
		"backbones,train.lr,extra,round,view,name,client,value" {
		t.Error(got)
	}
	var got []string
	for _, row := range rows[1:] {
		if line, ok := strings.CutPrefix(strings.Join(row, ","), "a,,coop,18446744073709551615,pacs,,3,,0.5,a,"); ok {
			got = append(got, line)
		}
	}
	for i, want := range []string{"1,,answered,0,1", "1,,answered,2,1", "1,,clients,2,1", "1,,cut.claimed,1,9",
		"1,,cut.counted,1,3", "1,global,accuracy,,0.5", "1,global,per_client,0,0.25", "1,global,per_client,2,0.75",
		"1,,loss,,1.5", "1,,lr,,1"} {
		if got[i] != want {
			t.Errorf("line %d: %s, want %s", i, got[i], want)
		}
	}
	for _, want := range []string{",global,last,,0.5", ",global,last5,,0.5", ",global,best,,0.5", ",,loss,,1.5",
		",,summary.best_round,,1", ",,summary.rounds,,1"} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if n := strings.Count(strings.Join(got, "\n"), "summary."); n != 2 {
		t.Errorf("%d lines of the summary; last is a metric", n)
	}
	all.Groups[0].Plan = &results.Plan{} // whose axis may have the name that single runs have
	if _, err := Write(&text, CSV, all, dir); err != nil || !strings.Contains(text.String(), ",axis.run,") {
		t.Errorf("without the axis of a sweep: %v, %s", err, text.String())
	}
	type line struct {
		Run     string   `parquet:"run"`
		Clients *int64   `parquet:"partition.clients"`
		LR      *float64 `parquet:"train.lr"`
		Extra   *string  `parquet:"extra"`
		Sweep   *string  `parquet:"sweep"`
		Method  string   `parquet:"method"`
		Seed    uint64   `parquet:"seed"`
		Round   *int64   `parquet:"round"`
		View    *string  `parquet:"view"`
		Name    string   `parquet:"name"`
		Client  *int64   `parquet:"client"`
		Value   float64  `parquet:"value"`
	}
	lines, err := parquet.Read[line](bytes.NewReader(binary.Bytes()), int64(binary.Len()))
	if err != nil || len(lines) != counted {
		t.Fatal(len(lines), err)
	}
	for i, l := range lines {
		got := []string{l.Run, "", l.Method, fmt.Sprint(l.Seed), "pacs", "", shown(l.Clients), "", shown(l.LR),
			shown(l.Extra), shown(l.Round), shown(l.View), l.Name, shown(l.Client), fmt.Sprint(l.Value)}
		if !slices.Equal(got, rows[i+1]) || l.Sweep != nil {
			t.Errorf("row %d: %v, in CSV %v", i, got, rows[i+1])
		}
	}
}

func shown[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}
