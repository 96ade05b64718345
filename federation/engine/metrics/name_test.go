package metrics

import (
	"strings"
	"testing"
)

func TestLastN(t *testing.T) {
	for text, want := range map[string]int{"last": 1, "last2": 2, "last999999": 999999, "last1": 0, "last0": 0,
		"last-3": 0, "last1000000": 0, "last02": 0, "5": 0, "last+5": 0, "best": 0, "": 0} {
		if n, ok := LastN(text); ok != (want > 0) || ok && n != want {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
	for window, want := range map[string]string{Last: "last tested round", "last3": "mean of the last 3 tested rounds",
		Best:    "best round, chosen on the test data: optimistic",
		BestVal: "round with the best validation accuracy", All: "mean of all rounds",
		First: "first round that has it", "last1": "", "x": ""} {
		if got := DescribeWindow(window); got != want {
			t.Errorf("%s: %q", window, got)
		}
	}
}

func TestParseName(t *testing.T) {
	for full, want := range map[string]string{ // metric, argument, window, view
		"last": "accuracy  last ", "best-val": "accuracy  best-val ", "last5": "accuracy  last5 ",
		"global": "accuracy  last global", "personal/best": "accuracy  best personal", "f1": "f1  last ",
		"global@last5": "accuracy  last5 global", "personal/f1@last10": "f1  last10 personal", "f1@all": "f1  all ",
		"domain:Art": "domain Art last ", "bytes": "bytes  all ", "bytes@last": "bytes  last ",
		"rounds-to:62.5": "rounds-to 62.5 first ", "set:x/y": "set x/y last ", "note:a:b": "note a:b last ",
		"seconds": "seconds  all ", "total-bytes": "total-bytes  last ",
	} {
		n, err := ParseName(full)
		if got := strings.Join([]string{n.Metric.Name, n.Argument, n.Window, n.View}, " "); err != nil || got != want {
			t.Errorf("%s: %q, %v", full, got, err)
		}
	}
	for _, full := range []string{"", "x", "all", "first", "f1@first", "f1@x", "f1@", "f1:x", "f1:", "domain",
		"domain:", "rounds-to:x", "rounds-to:NaN", "rounds-to:-5", "rounds-to", "global/bytes", "other/f1",
		"last@last5", "rounds-to:60@first", "rounds-to:60@last"} {
		if n, err := ParseName(full); err == nil || !strings.HasPrefix(err.Error(), `unknown metric "`+full+`": `) ||
			!strings.HasSuffix(err.Error(), "docs/evaluation.md lists all metrics") {
			t.Errorf("%s: %+v, %v", full, n, err)
		}
	}
}
