package results

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// sentRounds are four rounds with global accuracies 0.5, 0.7, 0.6 and 0.9, and personal accuracies lower by 0.1. The
// second round was not tested. Each round sends 100 + 50 bytes and 20 + 10 parameters, and takes 3 simulated seconds.
const sentRounds = `{"format":2,"round":0,"tested":true,"view":"global","accuracy":0.5,` +
	`"evaluations":{"global":{"accuracy":0.5},"personal":{"accuracy":0.4}},"bytes_up":100,"bytes_down":50,` +
	`"parameters_up":20,"parameters_down":10,"simulated":{"seconds":3}}
{"format":2,"round":1,"tested":false,"bytes_up":100,"bytes_down":50,"parameters_up":20,"parameters_down":10,` +
	`"simulated":{"seconds":6}}
{"format":2,"round":2,"tested":true,"view":"global","accuracy":0.6,` +
	`"evaluations":{"global":{"accuracy":0.6},"personal":{"accuracy":0.5}},"bytes_up":100,"bytes_down":50,` +
	`"parameters_up":20,"parameters_down":10,"simulated":{"seconds":9}}
{"format":2,"round":3,"tested":true,"view":"global","accuracy":0.9,` +
	`"evaluations":{"global":{"accuracy":0.9},"personal":{"accuracy":0.8}},"bytes_up":100,"bytes_down":50,` +
	`"parameters_up":20,"parameters_down":10,"simulated":{"seconds":12}}
`

// TestToTarget: by hand from sentRounds. The personal evaluation reaches 60 % two rounds after the global one.
func TestToTarget(t *testing.T) {
	rounds, err := ReadRounds(strings.NewReader(sentRounds))
	if err != nil {
		t.Fatal(err)
	}
	r := &Run{State: Done, Rounds: rounds, View: GlobalView, Target: 60}
	for _, c := range []struct {
		name string
		want float64 // NaN means never
	}{
		{"total-bytes", 600}, {"total-parameters", 120}, {"simulated", 12},
		{"rounds-to:50", 1}, {"rounds-to:60", 3}, {"rounds-to:89.9", 4}, {"rounds-to:91", math.NaN()},
		{"bytes-to:60", 450}, {"parameters-to:60", 90}, {"simulated-to:60", 9}, {"global/bytes-to:60", 450},
		{"personal/rounds-to:60", 4}, {"personal/bytes-to:50", 450},
	} {
		m, err := ParseMetric(c.name)
		if err != nil {
			t.Error(err)
			continue
		}
		got, ok := m.Value(r)
		if ok == math.IsNaN(c.want) || ok && got != c.want {
			t.Errorf("%s is %v %v, want %v", c.name, got, ok, c.want)
		}
	}
	main := MainMetrics("last", []*Group{{Runs: []*Run{r}}})
	at := slices.Index(main, "simulated")
	if at < 0 || !slices.Equal(main[at:], []string{"simulated", "rounds-to:60", "bytes-to:60", "parameters-to:60",
		"simulated-to:60"}) {
		t.Errorf("main metrics %v", main)
	}
	for _, name := range []string{"rounds-to", "rounds-to:", "rounds-to:high", "bytes@first", "first",
		"total-bytes:3"} {
		if m, err := ParseMetric(name); err == nil {
			t.Errorf("%s is a metric: %+v", name, m)
		}
	}
	_, err = ReadRounds(strings.NewReader(strings.Replace(sentRounds, `"seconds":3`, `"seconds":-3`, 1)))
	if err == nil || !strings.Contains(err.Error(), "impossible") {
		t.Errorf("a time before the start: %v", err)
	}
}
