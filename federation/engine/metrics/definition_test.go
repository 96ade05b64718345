package metrics

import (
	"fmt"
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

// Every metric has all fields that tables, checks and the glossary read, and accuracy is the first column.
func TestDefinitions(t *testing.T) {
	all, names, keys := Definitions(), map[string]bool{}, map[string]bool{perClientKey: true, perDomainKey: true}
	for _, d := range all {
		if d.Title == "" || d.Merge == "" || d.Exists == "" || d.Privacy == "" || d.Read == nil || !(d.Low < d.High) {
			t.Errorf("%s is not complete: %+v", d.Name, d)
		}
		if names[d.Name] || d.Key != "" && keys[d.Key] {
			t.Errorf("%s or its key %s is there twice", d.Name, d.Key)
		}
		names[d.Name], keys[d.Key] = true, true
		if _, err := ParseName(d.Name + map[bool]string{true: ":5"}[d.Argument != ""]); err != nil {
			t.Error(err)
		}
	}
	if all[0].Name != Accuracy {
		t.Errorf("the columns begin with %s", all[0].Name)
	}
}

// An empty round has no metric of an evaluation, and no reader panics.
func TestEmptyRound(t *testing.T) {
	for _, d := range Definitions() {
		if v, ok := d.Read(Round{}, "1"); ok && d.Evaluated {
			t.Errorf("an empty round has %s %v", d.Name, v)
		}
		if d.Arguments != nil && len(d.Arguments(Round{})) > 0 {
			t.Errorf("an empty round has arguments of %s", d.Name)
		}
	}
}

// Bounds, windows and keys that a definition leaves out follow from the rest.
func TestDefaultsOfDefinitions(t *testing.T) {
	inf := math.Inf(1)
	for name, want := range map[string]string{Accuracy: "[0 1] last accuracy", Brier: "[0 2] last brier",
		Kappa: "[-1 1] last kappa", Loss: fmt.Sprint([]float64{-inf, inf}) + " last ", Bytes: "[0 +Inf] all ",
		Weighted: "[0 1] last accuracy_weighted", OwnClasses: "[0 1] last own_classes",
		RoundsTo: "[0 +Inf] first ", TotalBytes: "[0 +Inf] last "} {
		d, ok := Find(name)
		if got := fmt.Sprint([]float64{d.Low, d.High}, " ", d.Window, " ", d.Key); !ok || got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for name, form := range map[string]string{F1: "f1", Domain: "domain:NAME", New: "new:STEPS",
		RoundsTo: "rounds-to:PERCENT"} {
		if d, ok := Find(name); !ok || d.Form() != form {
			t.Errorf("%s has the form %s", name, d.Form())
		}
	}
	for name, privacy := range map[string]string{F1: sentAsIs, Kappa: labels, Loss: training, HM: derived} {
		if d, _ := Find(name); d.Privacy != privacy {
			t.Errorf("%s: %s", name, d.Privacy)
		}
	}
	if _, ok := Find("x"); ok {
		t.Error("x is a metric")
	}
}

// What definitions read in a round, with values of the round that differ.
func TestReadRound(t *testing.T) {
	at := func(v float64) *Evaluation {
		return &Evaluation{Values: map[string]float64{Accuracy: v}, PerDomain: map[string]float64{"Art": v, "art": 0}}
	}
	honest, success, seconds, loss := .6, .7, 8., 1.5
	full := Round{Number: 2, Evaluation: at(.5), Validation: at(.55),
		Sets:       map[string]*Evaluation{BaseSet: at(.8), "Flowers": at(.2), "x": at(.4), TriggeredSet: at(.9)},
		NewClients: map[string]*Evaluation{"0": at(.1), "5": at(.3)},
		BaseToNew:  Generalise(at(.5), at(.25), at(.75)), Attacked: true, Honest: &honest, Success: &success,
		Notes: map[string]float64{"epsilon": 3}, Loss: &loss, Seconds: 2, Bytes: 100, TotalBytes: 300,
		TotalParameters: 40, Simulated: &seconds}
	honestOnly := full
	honestOnly.Attacked = false
	missing := full
	missing.Sets = map[string]*Evaluation{"x": at(.4), "y": {}}
	missing.TotalParameters, missing.Evaluation = 0, nil
	for _, c := range []struct {
		name string
		of   Round
		want float64 // -1 for none
	}{
		{Accuracy, full, .5}, {Domain + ":Art", full, .5}, {Domain + ":art", full, 0}, {Domain + ":ART", full, .5},
		{Domain + ":A", full, -1}, {Set + ":x", full, .4}, {Set + ":flowers", full, .2}, {Set + ":y", full, -1},
		{SetMean, full, .3}, {SetMean, missing, -1}, {HM, full, .375}, {HM3, full, 3 / (2 + 4 + 4./3)},
		{HM, Round{}, -1}, {Val, full, .55}, {New + ":5", full, .3}, {New + ":1", full, -1}, {Honest, full, .6},
		{Honest, honestOnly, .5}, {Success, full, .7}, {Success, Round{}, -1}, {Note + ":epsilon", full, 3},
		{Loss, full, 1.5}, {Bytes, full, 100}, {Seconds, full, 2}, {TotalBytes, full, 300},
		{TotalParameters, full, 40}, {TotalParameters, missing, -1}, {Simulated, full, 8}, {Simulated, Round{}, -1},
		{RoundsTo + ":50", full, 3}, {RoundsTo + ":50.1", full, -1},
		{RoundsTo + ":58", Round{Evaluation: at(.58)}, 1}, // 100*.58 is below 58
		{Loss, Round{}, -1}, {BytesTo + ":0", full, 300},
		{BytesTo + ":0", missing, -1}, {ParametersTo + ":40", full, 40}, {SimulatedTo + ":9", full, 8},
	} {
		n, err := ParseName(c.name)
		goldentest.NoError(t, err)
		if v, ok := n.Metric.Read(c.of, n.Argument); ok != (c.want >= 0) || ok && math.Abs(v-c.want) > 1e-15 {
			t.Errorf("%s: %v (%v), want %v", c.name, v, ok, c.want)
		}
	}
	if _, ok := func() (float64, bool) { d, _ := Find(RoundsTo); return d.Read(full, "x") }(); ok {
		t.Error("x is a percentage")
	}
	for name, want := range map[string]string{Domain: "[Art art]", Set: "[Flowers backdoor base x]", New: "[0 5]",
		Note: "[epsilon]", Honest: "[]"} {
		if d, _ := Find(name); fmt.Sprint(d.Arguments(full)) != want || name == Honest &&
			(len(d.Arguments(full)) != 1 || len(d.Arguments(honestOnly)) != 0) {
			t.Errorf("%s: %q", name, d.Arguments(full))
		}
	}
	if g := Generalise(at(.5), at(0), at(.5)); g == nil || g.HM != 0 || g.HM3 != 0 || g.Local != .5 || g.New != .5 {
		t.Errorf("%+v", g)
	}
	for i := range 3 {
		evaluations := []*Evaluation{at(1), at(1), at(1)}
		evaluations[i] = nil
		if g := Generalise(evaluations[0], evaluations[1], evaluations[2]); g != nil {
			t.Errorf("without the evaluation %d: %+v", i, g)
		}
	}
}
