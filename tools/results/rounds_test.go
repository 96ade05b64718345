package results

import (
	"strings"
	"testing"
)

// TestAnswered: lists of a round that some client did not answer in are left out; its means stay.
func TestAnswered(t *testing.T) {
	rounds, err := ReadRounds(strings.NewReader(
		`{"round":0,"tested":true,"accuracy":0.5,"per_client":[0.25,0.75],"test_sizes":[4,4],"clients":[0,1]}` + "\n" +
			`{"round":1,"tested":true,"accuracy":0.75,"answered":[1],"per_client":[0.75],"test_sizes":[4],"clients":[1]}` + "\n"))
	if err != nil || len(rounds) != 2 {
		t.Fatal(len(rounds), err)
	}
	if len(rounds[0].PerClient) != 2 || rounds[1].PerClient != nil || rounds[1].TestSizes != nil || rounds[1].Accuracy != 0.75 || rounds[1].Worst != 0.75 {
		t.Errorf("%+v", rounds)
	}
}
