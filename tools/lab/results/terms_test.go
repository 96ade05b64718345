package results

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// Two rounds of three terms: pull is below 1e-3 on all its parameters in both rounds; push is above in the second;
// ridge is small beside cross entropy, but alone on its parameter; the correction starts in round 1 and has no value.
const twoRounds = `{"format":2,"round":0,"terms":[` +
	`{"name":"cross entropy","value":2,"norm":4,"relative":1,"params":{"a":{"norm":4,"relative":1}}},` +
	`{"name":"pull","value":0.5,"norm":0.001,"relative":0.00025,"params":{"a":{"norm":0.001,"relative":0.00025}}},` +
	`{"name":"push","value":-1,"norm":0,"relative":0,"params":{"a":{"norm":0,"relative":0}}},` +
	`{"name":"ridge","value":3,"norm":0.002,"relative":0.0005,"params":{"b":{"norm":0.002,"relative":null}}}]}
{"format":2,"round":1,"terms":[` +
	`{"name":"cross entropy","value":1,"norm":2,"relative":1,"params":{"a":{"norm":2,"relative":1}}},` +
	`{"name":"pull","value":0.5,"norm":0,"relative":0,"params":{"a":{"norm":0,"relative":0}}},` +
	`{"name":"push","value":-1,"norm":0.002,"relative":0.001,"params":{"a":{"norm":0.002,"relative":0.001}}},` +
	`{"name":"ridge","value":3,"norm":0.001,"relative":0.0005,"params":{"b":{"norm":0.001,"relative":null}}},` +
	`{"name":"correction","value":null,"norm":1,"relative":0.5,"params":{"a":{"norm":1,"relative":0.5}}}]}
`

func TestTermsOfRounds(t *testing.T) {
	rounds, err := ReadRounds(strings.NewReader(twoRounds))
	if err != nil || len(rounds) != 2 {
		t.Fatal(rounds, err)
	}
	var rows []string
	for _, term := range Terms(rounds) {
		rows = append(rows, strings.TrimSpace(term.Name+" "+term.Param))
		switch {
		case term.Name == "pull" && term.Param == "a" && !slices.Equal(term.Relative, []float64{0.00025, 0}),
			term.Name == "ridge" && term.Param == "b" && !(math.IsNaN(term.Relative[1]) && term.Norm[1] == 0.001),
			term.Name == "correction" && !(slices.Equal(term.Rounds, []int{1}) && math.IsNaN(term.Value[0]) &&
				term.Relative[0] == 0.5):
			t.Errorf("%+v", term)
		}
	}
	want := "cross entropy,cross entropy a,pull,pull a,push,push a,ridge,ridge b,correction,correction a"
	if got := strings.Join(rows, ","); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	if got := VanishingTerms(rounds); !slices.Equal(got, []string{"pull"}) {
		t.Errorf("%q do next to nothing", got)
	}
	if got := VanishingTerms(rounds[:1]); !slices.Equal(got, []string{"pull", "push"}) {
		t.Errorf("%q do next to nothing in the first round", got)
	}
	off := func(rounds []Round, term string) bool {
		return strings.Contains(VanishingNote("run", term, rounds), "has no gradient")
	}
	if off(rounds, "pull") || !off(rounds[:1], "push") || !off(rounds, "none") {
		t.Error("of pull, push in the first round and none, only the last two have no gradient")
	}
}

func TestTermsThatNoRunMeasures(t *testing.T) {
	for _, terms := range []string{`[{"name":""}]`, `[{"name":"a","norm":-1}]`, `[{"name":"a","value":1e99}]`,
		`[{"name":"a","params":{"b":{"norm":1,"relative":-2}}}]`, `[{"name":"a","params":{"b":{"norm":1e31}}}]`,
		`[{"name":"a","params":{"":{"norm":1}}}]`, `[` + strings.Repeat(`{"name":"a"},`, 64) + `{"name":"a"}]`} {
		rounds, err := ReadRounds(strings.NewReader(`{"format":2,"round":0,"terms":` + terms + "}\n"))
		if err == nil || len(rounds) != 0 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %d rounds, %v", terms, len(rounds), err)
		}
	}
}
