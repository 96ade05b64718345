package engine

// Pace is what one client does in place of what all do; 0 leaves it at that.
type Pace struct {
	Epochs int // passes over its data in a round
	Batch  int // examples of one step
	Steps  int // of a round at most, 0 for no bound
}

// of is the training of a client whose pace stands in Each, which is repeated when there are more clients.
func (t Training) of(client int) (Training, int) {
	if len(t.Each) == 0 {
		return t, 0
	}
	p := t.Each[client%len(t.Each)]
	if p.Epochs > 0 {
		t.Epochs = p.Epochs
	}
	if p.Batch > 0 {
		t.Batch = p.Batch
	}
	return t, p.Steps
}
