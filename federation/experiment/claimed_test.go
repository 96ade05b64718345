package experiment

import "testing"

// Accuracies are claims only where clients are on other machines.
func TestClaimed(t *testing.T) {
	c := smallConfig("promptfl")
	server, err := OpenServer(c, false)
	if err != nil {
		t.Fatal(err)
	}
	if here := open(t, c); !server.Experiment.Evaluate.Claimed || here.Experiment.Evaluate.Claimed {
		t.Errorf("server %v, one process %v", server.Experiment.Evaluate.Claimed, here.Experiment.Evaluate.Claimed)
	}
}
