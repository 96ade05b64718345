package report

import (
	"encoding/json"
	"testing"

	"promptfed/federation/engine/record"
	"promptfed/tools/lab/results"
)

// TestDriftOfClients: a client has the rounds in which it trained, and the gap of an update without a direction. Runs
// that measured nothing have no panel. Of 50,000 updates, which are 2.5 times the limit, every third round is left.
func TestDriftOfClients(t *testing.T) {
	half := 0.5
	round := func(list ...record.ClientDrift) results.Round {
		return results.Round{Record: record.Record{Drift: list}}
	}
	rounds := []results.Round{round(record.ClientDrift{Client: 7, Norm: 2, Cosine: &half}), round(),
		round(record.ClientDrift{Client: 1}, record.ClientDrift{Client: 7, Norm: 3, Cosine: &half})}
	const want = `[{"client":1,"rounds":[3],"norm":[0],"cosine":[null]},` +
		`{"client":7,"rounds":[1,3],"norm":[2,3],"cosine":[0.5,0.5]}]`
	if got, err := json.Marshal(drifts(rounds)); err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if got := drifts(rounds[1:2]); got != nil {
		t.Errorf("%+v of a run that measured nothing", got)
	}
	many := make([]results.Round, 50_000)
	for i := range many {
		many[i] = round(record.ClientDrift{Norm: float64(i)})
	}
	if got := drifts(many); len(got) != 1 || len(got[0].Rounds) != 16_667 || got[0].Rounds[1] != 4 {
		t.Errorf("%d clients", len(got))
	}
}
