package results

import (
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/record"
)

// TestOneWindow: the columns beside the accuracy of the last two rounds cover the same two rounds. By hand, for rounds
// of two clients with .2 and .4, then .4 and .8: macro-F1, a quarter of the mean, is .075 and .15; the worst client has
// .2 and .4. The evaluation set was tested only in the last round, as its head states. The heads of costs state that
// costs cover all rounds.
func TestOneWindow(t *testing.T) {
	r := &Run{State: Done, Rounds: rounds([2]float64{0, 1}, [2]float64{.2, .4}, [2]float64{.4, .8})}
	r.Rounds[2].EvaluationSets = map[string]record.SetResult{"pets": {Evaluation: accurate(.5)}}
	r.Rounds[2].Notes = map[string]float64{"epsilon": 3}
	groups := []*Group{{Runs: []*Run{r}}}
	asked := metric(t, "last2")
	got := map[string]float64{}
	var heads []string
	for _, name := range MainMetrics("last2", groups) {
		m := metric(t, name)
		v, _ := m.Value(r)
		got[m.ColumnHead(asked)] = v
		heads = append(heads, m.ColumnHead(asked))
	}
	for head, want := range map[string]float64{"last2": .45, "f1@last2": .1125, "worst@last2": .3,
		"personal@last2": .45, "global@last2": .225, "set:pets@last": .5, "note:epsilon@last": 3,
		"bytes@all": 150, "seconds@all": 2,
		"loss@last": 2, "best": .6} {
		if v, ok := got[head]; !ok || v < want-1e-12 || v > want+1e-12 {
			t.Errorf("%s is %v (%v), want %v; heads %s", head, v, ok, want, strings.Join(heads, " "))
		}
	}
	if slices.ContainsFunc(heads, func(h string) bool {
		return !strings.Contains(h, "@") && h != "last2" && h != "best"
	}) {
		t.Errorf("a head does not say its window: %s", strings.Join(heads, " "))
	}
	// With the last round, only costs cover other rounds.
	asked = metric(t, "last")
	heads = nil
	for _, name := range MainMetrics("last", groups) {
		heads = append(heads, metric(t, name).ColumnHead(asked))
	}
	if !slices.Contains(heads, "f1") || !slices.Contains(heads, "set:pets") || !slices.Contains(heads, "seconds@all") {
		t.Errorf("heads beside the last round: %s", strings.Join(heads, " "))
	}
	// The accuracy of every run's own evaluation is no second column.
	r.show(GlobalView)
	if own := MainMetrics("last2", groups); slices.Contains(own, "global@last2") || !slices.Contains(own,
		"personal@last2") {
		t.Errorf("columns beside the global accuracy: %s", own)
	}
}
