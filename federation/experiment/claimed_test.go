package experiment

import "testing"

// Accuracies are claims only where clients are on other machines.
func TestClaimed(t *testing.T) {
	c := smallConfig("promptfl")
	server, err := OpenServer(c)
	if err != nil {
		t.Fatal(err)
	}
	if here := open(t, c); !server.Engine.Evaluate.Claimed || here.Engine.Evaluate.Claimed {
		t.Errorf("server %v, one process %v", server.Engine.Evaluate.Claimed, here.Engine.Evaluate.Claimed)
	}
}
