package results

import (
	"strings"
	"testing"
)

// TestAnswered: lists of a round that some client did not answer in are left out, in folders of older versions too,
// which do not say who answered; its means stay, and so does its worst client.
func TestAnswered(t *testing.T) {
	for _, says := range []string{`"answered":[1],`, ""} {
		rounds, err := ReadRounds(strings.NewReader(
			`{"round":0,"tested":true,"accuracy":0.5,"per_client":[0.25,0.75],"test_sizes":[4,4],"clients":[0,1]}` +
				"\n" +
				`{"round":1,"tested":true,"accuracy":0.75,` + says +
				`"per_client":[0.75],"test_sizes":[4],"clients":[1]}` + "\n"))
		if err != nil || len(rounds) != 2 {
			t.Fatal(len(rounds), err)
		}
		if len(rounds[0].PerClient) != 2 || rounds[1].PerClient != nil || rounds[1].TestSizes != nil ||
			rounds[1].Accuracy != 0.75 {
			t.Errorf("%s: %+v", says, rounds)
		}
		run := &Run{Rounds: rounds}
		if v, ok := metric(t, "worst").Of(run); !ok || v != 0.75 {
			t.Errorf("%s: the worst client of the last round has %v, %v", says, v, ok)
		}
		if got := metric(t, "last").PerClient(run); got != nil {
			t.Errorf("%s: a round that one client did not answer gives %v", says, got)
		}
		whole := &Run{Rounds: rounds[:1]}
		if g := (&Group{}); pairKey(g, "", run) != pairKey(g, "", whole) {
			t.Errorf("%s: a run whose last test one client missed is not paired with one that all answered", says)
		}
	}
	// Of three clients, two answered each time, but not the same two.
	rounds, err := ReadRounds(strings.NewReader(
		`{"round":0,"tested":true,"accuracy":0.5,"answered":[0,1],"per_client":[0.25,0.75]}` + "\n" +
			`{"round":1,"tested":true,"accuracy":0.5,"answered":[1,2],"per_client":[0.75,0.25]}` + "\n"))
	if err != nil || rounds[0].PerClient != nil || rounds[1].PerClient != nil {
		t.Errorf("%+v, %v", rounds, err)
	}
}
