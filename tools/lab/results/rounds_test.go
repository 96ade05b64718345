package results

import (
	"fmt"
	"strings"
	"testing"
)

// answeredLine returns a round that the given clients answered.
func answeredLine(round int, answered, perClient, sizes string, accuracy, worst float64) string {
	own := fmt.Sprintf(`"accuracy":%v,"worst":%v,"per_client":%s`, accuracy, worst, perClient)
	return fmt.Sprintf(`{"format":2,"round":%d,"tested":true,%s,"evaluations":{"personal":{%s}},"answered":%s,`+
		`"test_sizes":%s}
`,
		round, own, own, answered, sizes)
}

// TestAnswered: lists by client are dropped for a round that some client did not answer. The means and the worst client
// stay.
func TestAnswered(t *testing.T) {
	rounds, err := ReadRounds(strings.NewReader(answeredLine(0, "[]", "[0.25,0.75]", "[4,4]", .5, .25) +
		answeredLine(1, "[1]", "[0.75]", "[4]", .75, .75)))
	if err != nil || len(rounds) != 2 {
		t.Fatal(len(rounds), err)
	}
	if len(rounds[0].Evaluation.PerClient) != 2 || rounds[1].Evaluation.PerClient != nil ||
		rounds[1].Evaluations.Personal.PerClient != nil ||
		rounds[1].TestSizes != nil || rounds[1].Evaluation.Accuracy() != 0.75 {
		t.Errorf("%+v", rounds)
	}
	run := &Run{Rounds: rounds}
	if v, ok := metric(t, "worst").Value(run); !ok || v != 0.75 {
		t.Errorf("the worst client of the last round has %v, %v", v, ok)
	}
	if got := metric(t, "last").PerClient(run); got != nil {
		t.Errorf("a round that one client did not answer gives %v", got)
	}
	whole := &Run{Rounds: rounds[:1]}
	if g := (&Group{}); pairKey(g, "", run) != pairKey(g, "", whole) {
		t.Error("a run whose last test one client missed is not paired with one that all answered")
	}
	// Two of three clients answered each time, but not the same two.
	rounds, err = ReadRounds(strings.NewReader(answeredLine(0, "[0,1]", "[0.25,0.75]", "[4,4]", .5, .25) +
		answeredLine(1, "[1,2]", "[0.75,0.25]", "[4,4]", .5, .25)))
	if err != nil || rounds[0].Evaluation.PerClient != nil || rounds[1].Evaluation.PerClient != nil {
		t.Errorf("%+v, %v", rounds, err)
	}
}
